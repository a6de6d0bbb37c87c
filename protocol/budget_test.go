package protocol

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// Half a large frame that never goes on holds its share; another Reader waits
// for it, and is refused when nothing is given back in time.
func TestLargeFramesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(1<<20, time.Second)
		frame := AppendFrame(nil, TypeProduce, 1, nil, make([]byte, 600<<10))
		pr, pw := io.Pipe()
		held := NewReader(pr, 4<<10)
		held.SetLimit(2 << 20)
		held.SetBudget(budget)
		done := make(chan error, 1)
		go func() {
			_, err := held.Next()
			done <- err
		}()
		if _, err := pw.Write(frame[:500<<10]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other := func() error {
			r := NewReader(bytes.NewReader(frame), 4<<10)
			r.SetLimit(2 << 20)
			r.SetBudget(budget)
			defer r.Close()
			_, err := r.Next()
			return err
		}
		if fe, ok := errors.AsType[*FrameError](other()); !ok || fe.Code != CodeOverloaded {
			t.Fatalf("while the budget is held: %v", fe)
		}
		if err := pw.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("half a frame: %v", err)
		}
		held.Close()
		if err := other(); err != nil {
			t.Fatalf("after it was given back: %v", err)
		}
	})
}
