package wal

import (
	"strings"
	"syscall"
	"testing"
)

// TestDuplicateWaitsForItsOriginal: while the original is not synced, its duplicate has no answer either (R17).
func TestDuplicateWaitsForItsOriginal(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(1, 100)
	goOn := make(chan struct{})
	r.fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			<-goOn
		}
		return nil
	})
	b := r.send.batch(t, 1, 100)
	first, err1 := r.log.Append(b)
	again, err2 := r.log.Append(b)
	early, _ := again.Done()
	close(goOn)
	if err1 != nil || err2 != nil || !again.Duplicate || again.Base != first.Base {
		t.Errorf("appended %+v, %v, then %+v, %v", first, err1, again, err2)
	}
	if early {
		t.Error("the duplicate was answered before its original was synced")
	}
	if err := again.Wait(); err != nil {
		t.Error(err)
	}
	if done, err := first.Done(); !done || err != nil {
		t.Errorf("the duplicate is answered, its original not: %v, %v", done, err)
	}
	r.close()
}

// TestNoSpaceLeavesNothingInTheFile: what was cut off is not in the file any more, whole or in part (R20).
func TestNoSpaceLeavesNothingInTheFile(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(3, 100)
	r.fsys.Fail(func(op, name string) error {
		if op == "write" && strings.HasSuffix(name, ".seg") {
			return syscall.ENOSPC
		}
		return nil
	})
	wantErr(t, r.put(64<<10), ErrFull)
	r.fsys.Fail(nil)
	r.log.mu.Lock()
	f := r.log.files.current
	want := f.size
	r.log.mu.Unlock()
	if e, err := r.fsys.Stat(f.handle.name); err != nil || e.Size != want {
		t.Errorf("the file has %d bytes, %v, want the %d of what is committed", e.Size, err, want)
	}
	r.close()
}

// TestAppendTimeOverARestart: a clock that was set back meanwhile does not make append times run backwards (R13).
func TestAppendTimeOverARestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newRig(t, nil)
		r.mustPut(3, 100)
		last := r.clock.ms
		fsys := r.fsys
		if clean {
			r.close()
		} else {
			fsys = fsys.Kill()
			if err := r.tier.Close(); err == nil {
				t.Error("closed on a dead file system")
			}
		}
		r.clock.ms -= 3_600_000
		tier := openTier(t, fsys, func(c *Config) { c.Now = r.clock.now })
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{1, 0, openEnd}}, Floor: 3})
		if err := l.Begin(2, found.End, 1<<40); err != nil {
			t.Fatal(err)
		}
		p, err := l.Append(r.send.batch(t, 1, 100))
		if err == nil {
			err = p.Wait()
		}
		if err != nil || p.AppendTime < last {
			t.Errorf("clean %v: appended at %d, %v, after one at %d", clean, p.AppendTime, err, last)
		}
		if err := tier.Close(); err != nil {
			t.Error(err)
		}
	}
}
