package broker

import (
	"context"
	"errors"
	"net"
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
	t.Parallel()
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

// Others are told of a port that listens on all addresses at the host that
// clients are told.
func TestPortOnAllAddressesIsToldAtTheAdvertisedHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ listening, told, want string }{
		{"0.0.0.0:8650", "10.1.2.3:6650", "10.1.2.3:8650"},
		{"[::]:8650", "broker.example:6650", "broker.example:8650"},
		{":8650", "[fd00::1]:6650", "[fd00::1]:8650"},
		{"127.0.0.12:8650", "10.1.2.3:6650", "127.0.0.12:8650"},
		{"", "10.1.2.3:6650", ""},
	} {
		if got := reachableAt(test.listening, test.told); got != test.want {
			t.Errorf("%s, clients at %s: told %s, want %s", test.listening, test.told, got, test.want)
		}
	}
	b, err := Open(t.Context(), Config{DataDir: t.TempDir(), Name: "n1", Advertise: "198.51.100.7:1", Listen: Listen{Client: "127.0.0.1:0", HTTP: "0.0.0.0:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := b.meta.View().Store(b.self().Store)
	if _, port, _ := net.SplitHostPort(b.HTTPAddr()); s.Addresses.HTTP != "198.51.100.7:"+port {
		t.Errorf("the metadata say %q", s.Addresses.HTTP)
	}
}
