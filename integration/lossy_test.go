package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLossyDiskForgetsWhatABrokerDidNotSync runs the whole way that a test of power loss takes: a process on the disk,
// power gone, the process again on what is left.
func TestLossyDiskForgetsWhatABrokerDidNotSync(t *testing.T) {
	disk := mountLossyDisk(t)
	o := fake(t, "plain")
	o.dir = filepath.Join(disk.dir, "data")
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, "n1", o)
	write := func(name string, sync bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(o.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(name); err != nil {
			t.Fatal(err)
		}
		if !sync {
			return
		}
		for _, path := range []string{f.Name(), o.dir, disk.dir} {
			d, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			d.Close()
		}
	}
	write("synced", true)
	write("unsynced", false)
	disk.losePower(b, 0)
	kept := filesUnder(t, o.dir, func(string, int64) bool { return true })
	if len(kept) != 1 || kept[0] != "synced" {
		t.Fatalf("after the loss of power the disk holds %q", kept)
	}
	b.start()
	b.stop(10 * time.Second)
}
