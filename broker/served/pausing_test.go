package served

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// What met a move is refused with the reason once the partition is served no
// more, though its log stays paused; nobody spins on it.
func TestWhatMeetsAMoveOfAClosedPartitionIsRefused(t *testing.T) {
	why := protocol.Errorf(protocol.CodeShuttingDown, "over")
	for name, end := range map[string]func(*Partition){
		"closed before":    func(p *Partition) { p.Close(why) },
		"closed meanwhile": func(p *Partition) { time.AfterFunc(time.Millisecond, func() { p.Close(why) }) },
		"let go":           func(p *Partition) { p.SendAway(why) },
		"let go meanwhile": func(p *Partition) { time.AfterFunc(time.Millisecond, func() { p.SendAway(why) }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Partition{}
				p.Pause()
				began := time.Now()
				end(p)
				if tries, err := tryPaused(p, t.Context()); !errors.Is(err, why) || tries > 2 || time.Since(began) > time.Millisecond {
					t.Errorf("after %d tries and %v: %v", tries, time.Since(began), err)
				}
			})
		})
	}
}

// However a log came to stay paused, a producer waits for it only so long.
func TestPausedLogIsNotWaitedForForEver(t *testing.T) {
	moving := &protocol.Error{Code: protocol.CodeMoving}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if tries, err := tryPaused(&Partition{}, t.Context()); !errors.Is(err, moving) || time.Since(began) > 2*pauseWait {
			t.Errorf("after %d tries, %v: %v", tries, time.Since(began), err)
		}
	})
	ended, end := context.WithCancel(t.Context())
	end()
	if tries, err := tryPaused(&Partition{}, ended); !errors.Is(err, moving) || tries > 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

// tryPaused is an append to a log that stays paused.
func tryPaused(p *Partition, ctx context.Context) (tries int, err error) {
	err = p.AfterMove(ctx.Done(), func() error {
		if tries++; tries > 10_000 {
			return errors.New("it spins")
		}
		return storage.ErrPaused
	})
	return tries, err
}
