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
	for name, test := range map[string]struct {
		peer, us time.Duration // before each piece, and behind it
		ok       bool
	}{
		"we are slow":   {0, time.Minute, true},
		"it is slow":    {6 * time.Second, 0, false},
		"nobody is":     {0, 0, true},
		"slow together": {time.Second, 6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				done := make(chan struct{})
				go func() { // returns when all is written, or the connection closed
					defer close(done)
					for range 4 {
						<-time.After(test.peer)
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
