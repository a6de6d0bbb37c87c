package wal

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/danubemq/danube/storage/disk"
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
	if e, err := r.fsys.Stat(f.Handle.Name); err != nil || e.Size != want {
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
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: 3})
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

// TestTornTailOnTheDisk: a torn tail is cut off the file itself, and one below the floor is kept, byte for byte (R10).
func TestTornTailOnTheDisk(t *testing.T) {
	for _, floor := range []uint64{3, 4} {
		r := newRig(t, nil)
		r.mustPut(3, 100)
		name := r.log.files.list[0].Handle.Name
		fsys := r.fsys.Kill()
		if err := r.tier.Close(); err == nil {
			t.Error("closed on a dead file system")
		}
		f, err := fsys.Open(name, disk.Write)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := f.Size()
		if err == nil {
			_, err = f.WriteAt([]byte("what a write that was never finished left"), whole)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		before, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		tier := openTier(t, fsys, nil)
		_, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: floor})
		want, class := whole, Torn
		if floor > 3 {
			want, class = before.Size, Damaged
		}
		if after, err := fsys.Stat(name); err != nil || after.Size != want || found.Class != class {
			t.Errorf("floor %d: the file has %d bytes, %v, want %d; found %+v", floor, after.Size, err, want, found)
		}
		if err := tier.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTrimStaysBelowTheCommittedEnd: what is not committed yet is not given up, whatever is asked for (R13).
func TestTrimStaysBelowTheCommittedEnd(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(2, 100)
	if err := r.log.Trim(1000); err != nil {
		t.Fatal(err)
	}
	if got := r.log.Start(); got != 2 {
		t.Errorf("trimmed to %d, the committed end is 2", got)
	}
	r.mustPut(1, 100)
	if got := readAll(t, r.log, 2); len(got) != 1 {
		t.Errorf("read %d messages, want the one behind what was trimmed", len(got))
	}
	r.close()
}

// TestAcksComeInTheOrderOfOffsets: while the first batch is not synced none
// behind it is acknowledged, and at every moment those that are form a prefix (R1).
func TestAcksComeInTheOrderOfOffsets(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(1, 100)
	goOn := make(chan struct{}, 100)
	r.fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			<-goOn
		}
		return nil
	})
	var list []Pending
	moved := make(chan struct{}, 1)
	defer r.log.Watch(moved)()
	for range 6 {
		p, err := r.log.Append(r.send.batch(t, 1, 100))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	for acked := 0; ; {
		before := acked
		acked = 0
		for i, p := range list {
			done, err := p.Done()
			if err != nil {
				t.Fatal(err)
			}
			if done && (i > acked || uint64(i)+1 >= r.log.Committed()) {
				t.Errorf("the ack of offset %d came before that of %d; committed %d", i+1, acked+1, r.log.Committed())
			}
			if done {
				acked = i + 1
			}
		}
		if acked == len(list) || t.Failed() {
			break
		}
		if before == acked || before == 0 {
			goOn <- struct{}{}
		}
		<-moved
	}
	close(goOn)
	r.close()
}
