package meta

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A database that was emptied is damage as soon as there is any sign of a cluster, also one too young to have a
// snapshot; only a directory that never had one is new (R9).
func TestEmptiedDatabaseNeverBootstraps(t *testing.T) {
	for name, test := range map[string]struct {
		marker, bootstrapped, damaged bool
	}{
		"never had a cluster": {false, false, false},
		"marker":              {true, false, true},
		"the caller knows":    {false, true, true},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, raftDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, raftDir, databaseFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if test.marker {
			if err := os.WriteFile(filepath.Join(dir, markerFile), []byte(markerHead), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Inspect(dir, test.bootstrapped)
		if _, damaged := errors.AsType[*DamagedError](err); damaged != test.damaged || err != nil && !damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}
