package broker_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// onMemory makes a broker keep its log in memory, where writes and syncs can be made to fail or wait.
func onMemory(t testing.TB, dir string) (*disk.Memory, func(*broker.Config)) {
	t.Helper()
	fsys := disk.NewMemory(1)
	if err := disk.MkdirAll(fsys, dir); err != nil {
		t.Fatal(err)
	}
	return fsys, func(c *broker.Config) { c.FS = fsys }
}

// produceFrame is a produce frame of one message for the producer that open made; n is its sequence.
func produceFrame(t testing.TB, ok protocol.OpenProducerOK, n uint64) []byte {
	t.Helper()
	var w batch.Builder
	w.Add(&batch.Message{Payload: []byte("a message"), PublishTime: 1})
	b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 7, Session: 1, Sequence: n})
	if err != nil {
		t.Fatal(err)
	}
	return protocol.AppendFrame(nil, protocol.TypeProduce, n+100, &protocol.Produce{Handle: ok.Handle, Epoch: ok.Epoch}, b)
}

// refusal reads the error that comes next.
func (c *rawConn) refusal() *protocol.Error {
	c.t.Helper()
	e := new(protocol.Error)
	if err := e.Decode(c.expect(protocol.TypeError).Header); err != nil {
		c.t.Fatal(err)
	}
	return e
}

// What a produce frame may have wrong is refused at the door, as not stored, and takes no offset (R4, R21).
func TestProduceFrameIsChecked(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	publish(t, dial(t, n), "checked", 0, 1)
	c := rawDial(t, n.ClientAddr())
	ok := c.open("checked")
	for name, test := range map[string]struct {
		epoch uint64 // added to the right one
		flip  int    // byte from the end whose bit is flipped, 0: none
		want  protocol.Code
	}{
		"newer epoch": {1, 0, protocol.CodeUnknownEpoch},
		"older epoch": {^uint64(0), 0, protocol.CodeUnknownEpoch},
		"body":        {0, 1, protocol.CodeCorruptBatch},
	} {
		said := ok
		said.Epoch += test.epoch
		f := produceFrame(t, said, 0)
		if test.flip > 0 {
			f[len(f)-test.flip] ^= 1
		}
		c.write(f)
		if e := c.refusal(); e.Code != test.want || !e.Code.Meaning().NotStored {
			t.Errorf("%s: %v, want %v", name, e, test.want)
		}
	}
	c.write(produceFrame(t, ok, 0))
	var stored protocol.ProduceOK
	if err := stored.Decode(c.expect(protocol.TypeProduceOK).Header); err != nil || stored.Base != 1 {
		t.Errorf("the good frame is at offset %d, %v, want 1", stored.Base, err)
	}
}

// While the sync hangs a produce frame has no answer, and a duplicate of it none either (R1, R17).
func TestNoAckBeforeTheSync(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, on := onMemory(t, dir)
	n := start(t, dir, on)
	publish(t, dial(t, n), "slow", 0, 1)
	c := rawDial(t, n.ClientAddr())
	ok := c.open("slow")
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			<-goOn
		}
		return nil
	})
	c.write(produceFrame(t, ok, 0))
	c.write(produceFrame(t, ok, 0))
	for id := range uint64(3) { // an answer that was ready would come no later than the second
		c.write(protocol.AppendFrame(nil, protocol.TypePing, 500+id, nil, nil))
		c.expect(protocol.TypePong)
	}
	release()
	for i := range 2 {
		var stored protocol.ProduceOK
		if err := stored.Decode(c.expect(protocol.TypeProduceOK).Header); err != nil || stored.Base != 1 || stored.Duplicate != (i == 1) {
			t.Errorf("answer %d: %+v, %v", i, stored, err)
		}
	}
}

// A batch whose write found no space was on its way: it is unknown, never "not stored" (R5), and the same sequence is
// stored once when there is space (R20).
func TestPendingBatchIsNeverCalledNotStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, on := onMemory(t, dir)
	n := start(t, dir, on)
	publish(t, dial(t, n), "full", 0, 1)
	c := rawDial(t, n.ClientAddr())
	ok := c.open("full")
	fsys.Fail(func(op, name string) error {
		if op == "write" && strings.HasSuffix(name, ".seg") {
			return syscall.ENOSPC
		}
		return nil
	})
	c.write(produceFrame(t, ok, 0))
	if e := c.refusal(); e.Code != protocol.CodeUnknownOutcome || e.Code.Meaning().NotStored || !e.Code.Meaning().Retriable {
		t.Errorf("a batch cut off for want of space: %v", e)
	}
	fsys.Fail(nil)
	deadline := time.Now().Add(10 * time.Second)
	for {
		c.write(produceFrame(t, ok, 0))
		f, err := c.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == protocol.TypeProduceOK {
			var stored protocol.ProduceOK
			if err := stored.Decode(f.Header); err != nil || stored.Base != 1 || stored.Duplicate {
				t.Errorf("sent again: %+v, %v", stored, err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the log stays full although space is back")
		}
	}
}

// The start of the log moves once that is committed: refused by the metadata, it stays and so do the messages (R13).
func TestTruncateCommitsBeforeItTrims(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *broker.Config) {
		c.Storage.Sync, c.Storage.SyncInterval = storage.Interval, time.Hour
	})
	c := dial(t, n)
	publish(t, c, "kept", 0, 10)
	// Nothing is synced, so nothing is acknowledged for good, and the metadata lets no start lie above that.
	if out, err := c.Admin().TopicTruncate(t.Context(), protocol.Truncate{Topic: "kept", Partition: 0, Before: 10}); err == nil {
		t.Fatalf("truncated above what is synced: %+v", out)
	}
	cons := consumer(t, c, "kept", client.ConsumerConfig{Subscription: "s", From: earliest})
	for i := range uint64(10) {
		if m := receive(t, cons); m.Offset != i {
			t.Fatalf("got offset %d, want %d", m.Offset, i)
		}
	}
	closeConsumer(t, cons)
}
