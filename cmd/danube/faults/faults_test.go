package faults

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, orders string) (f *Faults, tell func(format string, args ...any) string) {
	t.Helper()
	f, err := Open(orders)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	c, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	answers := bufio.NewReader(c)
	return f, func(format string, args ...any) string {
		t.Helper()
		if _, err := fmt.Fprintf(c, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(answer)
	}
}

// TestCommands gives each command once, and what is none.
func TestCommands(t *testing.T) {
	f, tell := open(t, "wait held 2; clock 1h; lease off")
	if !f.LeaseOff {
		t.Error("leases are not off")
	}
	if ahead := time.Until(f.Now()); ahead < 59*time.Minute {
		t.Errorf("the clock is %v ahead", ahead)
	}
	f.At("held")
	f.At("other")
	for _, c := range []struct{ line, want string }{
		{"reached held", "ok 1"}, {"steps", "ok held=1 other=1"}, {"clock -1h", "ok"}, {"sync 10ms", "ok"}, {"kill x 3", "ok"},
		{"sync -1s", "error "}, {"clock soon", "error "}, {"kill x none", "error "}, {"lease off", "error "}, {"frobnicate", "error "}, {"", "error "},
	} {
		if got := tell(c.line); !strings.HasPrefix(got, c.want) || c.want == "ok" && got != "ok" {
			t.Errorf("%q is answered %q, want %q", c.line, got, c.want)
		}
	}
	if ahead := time.Until(f.Now()); ahead > time.Minute {
		t.Errorf("the clock is %v ahead after it was set back", ahead)
	}
	if _, err := Open("nonsense"); err == nil {
		t.Error("a wrong order of the environment passed")
	}
}

// TestWaitHoldsUntilGo: at the time ordered, not before.
func TestWaitHoldsUntilGo(t *testing.T) {
	f, tell := open(t, "")
	tell("wait s 2")
	f.At("s")
	passed := make(chan struct{})
	go func() { f.At("s"); close(passed) }() // returns when it is let go
	for tell("reached s") != "ok 2" {
		select {
		case <-passed:
			t.Fatal("it did not wait")
		default:
		}
	}
	select {
	case <-passed:
		t.Fatal("it did not wait")
	default:
	}
	tell("go s")
	<-passed
	f.At("s")
}

func TestFailPanics(t *testing.T) {
	f, tell := open(t, "")
	tell("fail s")
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f.At("s")
}

// TestSyncTakesItsTime, and no longer once the port is closed.
func TestSyncTakesItsTime(t *testing.T) {
	f, tell := open(t, "")
	file, err := f.Disk(disk.OS()).Open(filepath.ToSlash(filepath.Join(t.TempDir(), "f")), disk.Create)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	took := func() time.Duration {
		t.Helper()
		from := time.Now()
		if err := file.Datasync(); err != nil {
			t.Error(err)
		}
		return time.Since(from)
	}
	tell("sync 300ms")
	if d := took(); d < 300*time.Millisecond {
		t.Errorf("a sync took %v", d)
	}
	tell("sync 1h")
	synced := make(chan struct{})
	go func() { took(); close(synced) }() // returns when the port is closed
	f.Close()
	<-synced
}
