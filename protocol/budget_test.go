package protocol

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Half a large frame that never goes on holds its share; another Reader waits
// for it, however long, and has its frame when it is given back.
func TestLargeFramesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(1 << 20)
		frame := AppendFrame(nil, TypeProduce, 1, nil, make([]byte, 600<<10))
		pr, pw := io.Pipe()
		held := budgeted(pr, budget)
		done := make(chan error, 1)
		go func() {
			_, err := held.Next()
			done <- err
		}()
		if _, err := pw.Write(frame[:500<<10]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other := make(chan error, 1)
		go func() {
			r := budgeted(bytes.NewReader(frame), budget)
			defer r.Close()
			_, err := r.Next()
			other <- err
		}()
		select {
		case err := <-other:
			t.Fatalf("while the budget is held: %v", err)
		case <-time.After(time.Hour):
		}
		if err := pw.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("half a frame: %v", err)
		}
		held.Close()
		if err := <-other; err != nil {
			t.Fatalf("after it was given back: %v", err)
		}
		large := budgeted(bytes.NewReader(AppendFrame(nil, TypeProduce, 1, nil, make([]byte, 1500<<10))), budget)
		defer large.Close()
		if _, err := large.Next(); err == nil {
			t.Error("a frame that never has room is taken")
		}
	})
}

func budgeted(src io.Reader, b *Budget) *Reader {
	r := NewReader(src, 4<<10)
	r.SetLimit(2 << 20)
	r.SetBudget(b)
	return r
}

// Many frames that have begun and all need more than is left come through, one
// after the other: none waits with what another needs.
func TestBegunFramesDoNotBlockEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(2 << 20)
		frame := AppendFrame(nil, TypeProduce, 1, nil, make([]byte, 1<<20))
		const peers = 32
		done := make(chan error, peers)
		var handling sync.WaitGroup
		defer handling.Wait()
		for range peers {
			pr, pw := io.Pipe()
			go func() { // the peer, which sends as it is let
				_, err := pw.Write(frame)
				done <- err
			}()
			handling.Go(func() { // the connection: handling a frame takes its time
				r := budgeted(pr, budget)
				defer r.Close()
				if _, err := r.Next(); err != nil {
					_ = pr.CloseWithError(err)
				}
				<-time.After(2 * time.Second)
			})
		}
		for range peers {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}
