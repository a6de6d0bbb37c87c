package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/protocol"
)

// TestWhatAStrangerReads: what went wrong is said in words that need no knowledge of the broker's inside, with what to do.
func TestWhatAStrangerReads(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	note := filepath.Join(t.TempDir(), "note")
	if err := os.WriteFile(note, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, said := b.danube(fail.Failed, "", "--broker", strings.TrimPrefix(b.ready["http"], "http://"), "topic", "list")
	b.says(said, "what listens there does not speak as a broker does to clients\n  hint: --broker names the port for clients")
	b.danube(fail.Done, "a\nb\nc\n", "produce", "cut")
	b.danube(fail.Done, "", "topic", "truncate", "cut", "--before", "2", "--yes")
	b.danube(fail.Done, "", "subscription", "create", "cut", "s")
	_, said = b.danube(fail.Done, "", "subscription", "reset", "cut", "s", "--to", "0")
	b.says(said, "the log of /default/cut:0 begins at 2: offsets 0-1 are gone")
	_, said = b.danube(fail.Done, "", "subscription", "reset", "cut", "s", "--to", "2")
	if strings.Contains(said, "gone") {
		t.Errorf("a reset to what is there says %s", said)
	}
	for _, mode := range []string{"latency", "produce"} {
		_, said = b.danube(fail.Failed, "", "bench", mode, "cut")
		b.says(said, "topic /default/cut is in use: it has 1 subscription")
	}
	_, said = b.danube(fail.Failed, "", "topic", "create", "/ns/t")
	b.says(said, "there is no namespace \"ns\"\n  hint: this version has the namespace default alone, and no command that makes others: name it /default/t")
	_, said = b.danube(fail.Failed, "", "broker", "remove", "n1", "--lose", "--yes")
	b.says(said, "broker n1 cannot be removed: it owns /default/cut:0, which is OPEN\n  hint: no other broker is active to take what it has")
	_, said = b.danube(fail.Failed, "", "cluster", "demote", "n1")
	b.says(said, "broker n1 cannot be demoted: it is the only voter")
	_, said = b.danube(fail.Failed, "", "cluster", "restore", note, "--yes")
	b.says(said, "this is no snapshot of the metadata, or a damaged one; nothing was changed\n  hint: ")
	_, said = b.danube(fail.Failed, "", "subscription", "delete", "cut", "none", "--yes")
	b.says(said, "hint: danube subscription list /default/cut names")
}

// TestWrongPortIsNamed: where something else answers than a broker to its clients, the ports are told apart.
func TestWrongPortIsNamed(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for name, x := range map[string]struct {
		err  error
		addr string
		want string
	}{
		"HTTP":          {reset, "127.0.0.1:8650", "--broker names the port for clients, 6650 unless the broker was started with another; 8650 is for HTTP"},
		"peers":         {reset, "127.0.0.1:7650", "--broker names the port for clients, 6650 unless the broker was started with another; 7650 is for brokers among themselves"},
		"another":       {reset, "127.0.0.1:17650", "--broker names the port for clients, 6650 unless the broker was started with another"},
		"no such host":  {&net.DNSError{}, "nowhere:8650", ""},
		"it has spoken": {protocol.Errorf(protocol.CodeNotReady, "not ready"), "127.0.0.1:6650", ""},
	} {
		if got := wrongPort(x.err, []string{x.addr}); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}
