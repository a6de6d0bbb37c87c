package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/disk"
)

// aloneName is the name of a broker that runs alone.
const aloneName = "n1"

// nameFile holds the broker's name in the data directory. It is for people: who the broker is says the store's id.
const nameFile = "name"

// ChooseName is the name a broker is told to have, else the one it had, else the host's; alone it is n1.
// A stored one that is none is named in the log and passed over.
func ChooseName(given, dir string, alone bool, log *slog.Logger) (string, error) {
	if given == "" {
		text, err := os.ReadFile(filepath.Join(dir, nameFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read the broker's name: %w", err)
		}
		given = strings.TrimSpace(string(text))
		if bad := state.CheckName("broker", given); err == nil && bad != nil {
			log.Warn("the broker's stored name is damaged and is made anew", "path", filepath.Join(dir, nameFile), "err", bad)
			given = ""
		}
	}
	if given == "" && alone {
		given = aloneName
	}
	if given == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fail.WithHint(fmt.Errorf("find the host's name: %w", err), "--name names the broker")
		}
		given = host
	}
	if err := state.CheckName("broker", given); err != nil {
		return "", fail.WithHint(fail.With(fail.Usage, err), "--name names the broker")
	}
	return given, nil
}

// KeepName stores the name for the next start.
func KeepName(dir, name string) error {
	file := filepath.Join(dir, nameFile)
	if text, err := os.ReadFile(file); err == nil && string(text) == name+"\n" {
		return nil
	}
	if err := disk.WriteFileAtomic(disk.OS(), file, []byte(name+"\n")); err != nil {
		return fmt.Errorf("store the broker's name: %w", err)
	}
	return nil
}
