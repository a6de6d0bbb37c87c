package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A peer whose frame this side makes wait, for memory or for the disk, is not
// the slow one (A71); a peer that trickles is.
func TestFrameTimeIsThePeersAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		idle, peer, us time.Duration // before the first piece, before each other one, and behind each
		ok             bool
	}{
		"we are slow":   {0, 0, time.Minute, true},
		"it is slow":    {0, 6 * time.Second, 0, false},
		"nobody is":     {0, 0, 0, true},
		"slow together": {0, time.Second, 6 * time.Second, true},
		"idle before":   {9 * time.Second, 2 * time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				done := make(chan struct{})
				go func() { // returns when all is written, or the connection closed
					defer close(done)
					pause := test.idle
					for range 4 {
						<-time.After(pause)
						pause = test.peer
						if _, err := theirs.Write(make([]byte, 1000)); err != nil {
							return
						}
					}
				}()
				r := &meteredReader{nc: ours}
				var err error
				for range 4 {
					if _, err = io.ReadFull(r, make([]byte, 1000)); err != nil {
						break
					}
					<-time.After(test.us)
				}
				if errors.Is(err, os.ErrDeadlineExceeded) == test.ok {
					t.Errorf("read: %v", err)
				}
				if err := ours.Close(); err != nil {
					t.Error(err)
				}
				<-done
			})
		})
	}
}
