package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/protocol"
)

func exampleBroker() protocol.BrokerDescription {
	return protocol.BrokerDescription{
		BrokerStatus: exampleStatus().Brokers[2],
		Owned:        []protocol.BrokerPartition{{Topic: "/default/orders", Partition: 2, Epoch: 4, State: "OPEN"}},
		Only:         []protocol.BrokerRange{{Topic: "/default/orders", Start: 10, End: 600, Status: "SEALED"}, {Topic: "/default/orders", Start: 600, End: 700, Status: "OPEN"}},
	}
}

// described decodes the name in a request about a broker.
func described(t *testing.T, body []byte) protocol.BrokerArgs {
	var arg protocol.BrokerArgs
	if err := protocol.DecodeBody(body, &arg); err != nil {
		t.Error(err)
	}
	return arg
}

// TestDrainWaitsUntilDrained asks until the broker says so, and not longer.
func TestDrainWaitsUntilDrained(t *testing.T) {
	asked := 0
	b := newPuppet(t, func(op string, body []byte) (any, error) {
		if arg := described(t, body); arg.Broker != "n3" {
			t.Errorf("%s of %q", op, arg.Broker)
		}
		if op == protocol.OpBrokerDrain {
			return protocol.Done{}, nil
		}
		asked++
		d := protocol.BrokerDescription{BrokerStatus: protocol.BrokerStatus{Name: "n3", State: "draining", Partitions: 2 - asked, OnlyCopies: 1}}
		if asked == 2 {
			d.State, d.Partitions, d.OnlyCopies = "drained", 0, 0
		}
		return d, nil
	})
	s := b.shell()
	if code := s.call(t, "broker", "drain", "n3"); code != fail.Done || s.out.String() != "broker n3: drained\n" || s.err.Len() > 0 {
		t.Errorf("exit code %d, says %q and %q", code, s.out.String(), s.err.String())
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	s = b.shell()
	if code := s.call(t, "broker", "drain", "n3", "--no-wait", "-o", "json"); code != fail.Done || !strings.Contains(s.out.String(), `"done": "draining"`) || asked != 2 {
		t.Errorf("--no-wait: exit code %d after %d questions, says %q", code, asked, s.out.String())
	}
}

// TestDrainThatEndsOtherwise says what is left and that the drain goes on, or what became of the broker.
func TestDrainThatEndsOtherwise(t *testing.T) {
	state := "draining"
	b := newPuppet(t, func(op string, _ []byte) (any, error) {
		if op == protocol.OpBrokerDrain {
			return protocol.Done{}, nil
		}
		return protocol.BrokerDescription{BrokerStatus: protocol.BrokerStatus{Name: "n3", State: state, Partitions: 2, OnlyCopies: 1, Reason: "n2 is full"}}, nil
	})
	s := b.shell()
	if code := s.call(t, "broker", "drain", "n3", "--timeout", "50ms"); code != fail.TimedOut {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"not done after 50ms: 2 partitions to move, 1 range to copy (n2 is full)", "the drain goes on", "danube broker activate"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("says %q without %q", s.err.String(), want)
		}
	}
	s = b.shell()
	if code := s.run(interrupted(t), []string{"broker", "drain", "n3"}); code != fail.Failed {
		t.Errorf("interrupted: exit code %d", code)
	}
	state = "lost"
	s = b.shell()
	if code := s.call(t, "broker", "drain", "n3"); code != fail.Failed || !strings.Contains(s.err.String(), "the broker is lost now") {
		t.Errorf("exit code %d, says %q", code, s.err.String())
	}
}

// TestRemoveAsksAndSaysWhatHelps when the broker refuses.
func TestRemoveAsksAndSaysWhatHelps(t *testing.T) {
	b := newPuppet(t, func(op string, body []byte) (any, error) {
		switch arg := described(t, body); {
		case op == protocol.OpBrokerDescribe && arg.Broker == "n9":
			return nil, protocol.Errorf(protocol.CodeBadRequest, "no broker n9")
		case op == protocol.OpBrokerDescribe:
			return exampleBroker(), nil
		case !arg.Lose:
			return nil, protocol.Errorf(protocol.CodeNotAllowed, "/default/orders:0 10-599 lies only there")
		}
		return protocol.Done{}, nil
	})
	for args, c := range map[string]struct {
		code int
		says string
	}{
		"n3":              {fail.Usage, "remove broker n3 (lost) for good asks for confirmation"},
		"n3 --lose":       {fail.Usage, "and give up 1 range whose only copy is there"},
		"n3 --yes":        {fail.Failed, "`danube broker drain n3` moves everything away first"},
		"n9":              {fail.Failed, "`danube broker list` names the brokers"},
		"n3 --lose --yes": {fail.Done, "broker n3: removed\n"},
	} {
		s := b.shell()
		if code := s.call(t, append([]string{"broker", "remove"}, strings.Fields(args)...)...); code != c.code || !strings.Contains(s.out.String()+s.err.String(), c.says) {
			t.Errorf("broker remove %s: exit code %d, says %q and %q", args, code, s.out.String(), s.err.String())
		}
	}
}

// TestSnapshotAndRestore carry the same bytes, in pages; a file there is replaced only when one says so.
func TestSnapshotAndRestore(t *testing.T) {
	whole := bytes.Repeat([]byte("metadata"), 300_000)
	var restored []byte
	b := newPuppet(t, func(op string, body []byte) (any, error) {
		var p protocol.SnapshotPage
		if err := protocol.DecodeBody(body, &p); err != nil {
			t.Error(err)
		}
		if op == protocol.OpClusterRestore {
			if p.Offset != int64(len(restored)) || p.Size != int64(len(whole)) || (p.Offset > 0) != (p.ID == "r1") {
				return nil, fmt.Errorf("page at %d of %d, id %q, after %d bytes", p.Offset, p.Size, p.ID, len(restored))
			}
			restored = append(restored, p.Data...)
			if p.Last != (len(restored) == len(whole)) {
				t.Errorf("last is %v after %d bytes", p.Last, len(restored))
			}
			if p.Last {
				return protocol.SnapshotPage{ID: "r1", Vanished: []string{"/default/new", "/default/newer"}, Gone: 3}, nil
			}
			return protocol.SnapshotPage{ID: "r1"}, nil
		}
		n := min(int64(len(whole))-p.Offset, 1<<20)
		return protocol.SnapshotPage{ID: "s1", Offset: p.Offset, Size: int64(len(whole)), Data: whole[p.Offset : p.Offset+n], Last: p.Offset+n == int64(len(whole))}, nil
	})
	file := filepath.Join(t.TempDir(), "snap")
	s := b.shell()
	if code := s.call(t, "cluster", "snapshot", file); code != fail.Done {
		t.Fatalf("exit code %d: %s", code, s.err.String())
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
	if code := b.shell().call(t, "cluster", "snapshot", file); code != fail.Usage {
		t.Errorf("a file was replaced unasked: exit code %d", code)
	}
	if code := b.shell().call(t, "cluster", "restore", file); code != fail.Usage || restored != nil {
		t.Errorf("restored unasked: exit code %d", code)
	}
	s = b.shell()
	if code := s.call(t, "cluster", "restore", file, "--yes"); code != fail.Done || !bytes.Equal(restored, whole) {
		t.Errorf("exit code %d after %d bytes: %s", code, len(restored), s.err.String())
	}
	if want := "not served any more: 3 topics\n  /default/new\n  /default/newer\n  and 1 more\n"; !strings.Contains(s.out.String(), want) {
		t.Errorf("what vanished is not named:\n%s", s.out.String())
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 1 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

// TestSnapshotThatFailsLeavesNothing neither half a file nor the old one harmed.
func TestSnapshotThatFailsLeavesNothing(t *testing.T) {
	b := newPuppet(t, func(_ string, body []byte) (any, error) {
		var p protocol.SnapshotPage
		if err := protocol.DecodeBody(body, &p); err != nil || p.Offset > 0 {
			return nil, protocol.Errorf(protocol.CodeInternal, "gone")
		}
		return protocol.SnapshotPage{ID: "s1", Size: 10, Data: []byte("part")}, nil
	})
	file := filepath.Join(t.TempDir(), "snap")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := b.shell().call(t, "cluster", "snapshot", file, "--yes"); code != fail.Failed {
		t.Errorf("exit code %d", code)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 1 {
		t.Errorf("left behind %v, %v", left, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("the old file holds %q, %v", got, err)
	}
}

// TestMoveSaysWhereTo each partition went.
func TestMoveSaysWhereTo(t *testing.T) {
	b := newPuppet(t, func(_ string, body []byte) (any, error) {
		var m protocol.TopicMove
		if err := protocol.DecodeBody(body, &m); err != nil {
			t.Error(err)
		}
		switch {
		case m.To == "n9":
			return nil, protocol.Errorf(protocol.CodeBadRequest, "no broker n9")
		case m.Topic != "/default/orders" || m.Partition != 2 || m.To != "n3":
			t.Errorf("asked for %+v", m)
		}
		return exampleMoved(), nil
	})
	s := b.shell()
	if code := s.call(t, "topic", "move", "orders:2", "--to", "n3"); code != fail.Done {
		t.Fatalf("exit code %d: %s", code, s.err.String())
	}
	golden(t, "topic-move.txt", s.out.Bytes())
	s = b.shell()
	if code := s.call(t, "topic", "move", "orders:2", "--to", "n9"); code != fail.Failed || !strings.Contains(s.err.String(), "danube broker list") {
		t.Errorf("exit code %d, says %q", code, s.err.String())
	}
}

// TestMoveThatTakesTooLong ends with the exit code for that, however long the client would wait by itself; 0 is no limit.
func TestMoveThatTakesTooLong(t *testing.T) {
	hang, tries := true, 0
	b := newPuppet(t, func(string, []byte) (any, error) {
		if tries++; hang || tries < 3 {
			return nil, protocol.Errorf(protocol.CodeNotReady, "/default/orders:2 is not served")
		}
		return exampleMoved(), nil
	})
	s := b.shell()
	if code := s.call(t, "topic", "move", "orders:2", "--to", "n3", "--timeout", "120ms"); code != fail.TimedOut {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"not done after 120ms", "is not served", "danube topic describe /default/orders:2"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("says %q without %q", s.err.String(), want)
		}
	}
	hang, tries = false, 0
	s = b.shell()
	if code := s.call(t, "topic", "move", "orders:2", "--to", "n3", "--timeout", "0s"); code != fail.Done {
		t.Errorf("without a limit: exit code %d, says %q", code, s.err.String())
	}
}

// TestBrokerThatDoesNotAnswer listens and waits for others: what to look at is said.
func TestBrokerThatDoesNotAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := newShell("DANUBE_BROKER=" + ln.Addr().String())
	_, err = s.dialFor(t.Context(), 50*time.Millisecond)
	if code := fail.Report(&s.err, err); code != fail.Failed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"timed out", "/readyz"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("says %q without %q", s.err.String(), want)
		}
	}
	if strings.Contains(s.err.String(), "closed network connection") {
		t.Errorf("says %q", s.err.String())
	}
}

func exampleMoved() protocol.TopicMoved {
	return protocol.TopicMoved{Partitions: []protocol.PartitionMoved{{Partition: 2, From: "n1", To: "n3", Epoch: 5, MovedAt: 1010}}}
}
