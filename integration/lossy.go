package integration

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lossyDisk is a folder on a file system that can lose power, run out of space and fail. It is the program of
// integration/fuse, whose comment lists the commands.
type lossyDisk struct {
	t       testing.TB
	dir     string // the mount point: give it to a broker as its data directory, or a folder in it
	process *process
	in      io.WriteCloser
	said    int // lines of its output that were read
}

// mountLossyDisk builds the program, mounts a new folder, and unmounts it when the test is over.
func mountLossyDisk(t testing.TB) *lossyDisk {
	t.Helper()
	// Root mounts by itself; others ask the helper program.
	if os.Getuid() != 0 {
		needs(t, "fusermount3", "fuse3")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		lacks(t, "/dev/fuse", "fuse3")
	}
	top := t.TempDir()
	program := programs.fuse(t)
	d := &lossyDisk{t: t, dir: filepath.Join(top, "mnt")}
	for _, dir := range []string{d.dir, filepath.Join(top, "disk")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command(program, filepath.Join(top, "disk"), d.dir)
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in = in
	d.process = spawn(t, "fusefs", run, openLog(t, "fusefs"))
	t.Cleanup(d.unmount) // before the cleanup of the process, which would leave the mount behind
	if answer := d.answer(); answer != "mounted" {
		t.Fatalf("mount a lossy disk: %s", answer)
	}
	return d
}

func (d *lossyDisk) unmount() {
	d.in.Close()
	if code, err := d.process.wait(30 * time.Second); err != nil || code != 0 {
		d.t.Errorf("unmount the lossy disk: exit code %d, %v", code, err)
	}
}

// say gives a command and returns the answer without its "ok".
func (d *lossyDisk) say(command string) string {
	d.t.Helper()
	if _, err := fmt.Fprintln(d.in, command); err != nil {
		d.t.Fatalf("tell the lossy disk %q: %v", command, err)
	}
	answer, ok := strings.CutPrefix(d.answer(), "ok")
	if !ok {
		d.t.Fatalf("lossy disk, %s: %s", command, answer)
	}
	return strings.TrimSpace(answer)
}

func (d *lossyDisk) answer() string {
	d.t.Helper()
	eventually(d.t, 30*time.Second, "an answer of the lossy disk", func() bool {
		return len(d.process.output()) > d.said || d.process.ended()
	})
	lines := d.process.output()
	if len(lines) <= d.said {
		d.t.Fatal("the lossy disk has ended")
	}
	d.said++
	return lines[d.said-1]
}

// losePower ends the broker and undoes what it had not synced; the disk is mounted anew at the same place. With a seed
// above zero some unsynced pages survive or are torn.
func (d *lossyDisk) losePower(b *broker, seed uint64) {
	d.t.Helper()
	b.kill()
	if seed == 0 {
		d.say("lose")
	} else {
		d.say(fmt.Sprintf("lose %d", seed))
	}
}
