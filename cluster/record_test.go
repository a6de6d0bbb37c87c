package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/danubemq/danube/cluster/founding"
)

// A record is read as it was written, and a data directory that was deleted is not made again for it.
func TestRecordMakesNoDataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := saveRecord(dir, founding.Record{Cluster: [16]byte{2}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("written into a directory that is not there: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []byte{2, 3} {
		want := founding.Record{Cluster: [16]byte{id}}
		if err := saveRecord(dir, want); err != nil {
			t.Fatal(err)
		}
		if got, err := loadRecord(dir); err != nil || got.Cluster != want.Cluster {
			t.Errorf("read %v, %v", got, err)
		}
	}
}
