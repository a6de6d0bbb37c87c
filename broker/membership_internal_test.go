package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// fallen is a broker's standing that somebody ends.
type fallen struct {
	failed chan struct{}
	err    error
}

func (f *fallen) Failed() <-chan struct{} { return f.failed }

func (f *fallen) Err() error {
	select {
	case <-f.failed:
		return f.err
	default:
		return nil
	}
}

// A start ends when the broker is found to be out of the cluster, or a second
// copy, whatever it waits for: nobody answers it any more. It says why.
func TestStartEndsWhenTheBrokerMustNotBe(t *testing.T) {
	second := errors.New("a second copy")
	for name, step := range map[string]func(context.Context) error{
		"waits for ever": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"went through":   func(context.Context) error { <-time.After(2 * time.Second); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fallen{failed: make(chan struct{}), err: second}
				time.AfterFunc(time.Second, func() { close(f.failed) })
				began := time.Now()
				if err := whileMember(t.Context(), f, step); !errors.Is(err, second) || time.Since(began) > 2*time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fallen{failed: make(chan struct{})}
		full := errors.New("disk full")
		if err := whileMember(t.Context(), f, func(context.Context) error { return full }); !errors.Is(err, full) {
			t.Errorf("a member's own error: %v", err)
		}
	})
}
