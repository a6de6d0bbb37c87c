package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/bench"
	"github.com/danubemq/danube/cmd/danube/pipe"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryCommandAndFlagIsDocumented also holds that each has a help text.
func TestEveryCommandAndFlagIsDocumented(t *testing.T) {
	page := readDoc(t, "cli.md")
	root := newShell().root()
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.HasParent() && cmd.Runnable() && !cmd.HasSubCommands() {
			seen++
			if !strings.Contains(page, commandName(cmd)) {
				t.Errorf("docs/cli.md lacks %q", commandName(cmd))
			}
			if cmd.Short == "" || cmd.Args == nil {
				t.Errorf("%s has no short help or takes any arguments", commandName(cmd))
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", commandName(cmd), f.Name)
			}
			if !strings.Contains(page, "--"+f.Name) {
				t.Errorf("docs/cli.md lacks --%s of %s", f.Name, commandName(cmd))
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	if seen < 25 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// TestDocumentedJSONIsWhatIsPrinted makes the examples of docs/cli.md with the code.
func TestDocumentedJSONIsWhatIsPrinted(t *testing.T) {
	page := readDoc(t, "cli.md")
	message := pipe.AppendJSON(nil, &client.Message{
		Topic: "/default/orders", Payload: []byte("hello"), PublishTime: noon(), AppendTime: noon().Add(time.Millisecond), Deliveries: 1,
	})
	acks, err := os.ReadFile(filepath.Join("pipe", "testdata", "produce.json"))
	if err != nil {
		t.Fatal(err)
	}
	ack, _, _ := bytes.Cut(acks, []byte("\n"))
	measured, err := json.Marshal(bench.Result{Messages: 1_000_000, Bytes: 128_000_000, Seconds: 1.5, Rate: 666666.7, P50: 100, P99: 900.5, P999: 2000, Max: 31000, Errors: 0})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]byte{message, ack, measured} {
		if !strings.Contains(page, strings.TrimSpace(string(line))) {
			t.Errorf("docs/cli.md lacks %s", line)
		}
	}
}
