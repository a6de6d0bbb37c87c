package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// bounded runs a broker with a topic that is to keep 128 KiB in segments of 64 KiB, and holds a MiB.
func bounded(t *testing.T) (*Broker, *served.Partition) {
	t.Helper()
	b := runningWith(t, Config{Storage: Storage{SegmentBytes: 64 << 10}})
	c, err := client.Dial(t.Context(), []string{b.ClientAddr()}, client.Config{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.Producer(t.Context(), "bounded", client.ProducerConfig{Create: &protocol.TopicConfig{RetentionBytes: 128 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := p.Send(t.Context(), client.Message{Payload: make([]byte, 16<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	part, err := b.serving(t.Context(), "bounded", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b, part
}

// first reads the first message of a log, from memory or from a file.
func first(p *served.Partition) error {
	r := p.Log.Reader(0)
	defer r.Close()
	v, err := r.Next(1)
	if err == nil {
		v.Release()
	}
	return err
}

// Nothing is deleted unless the new start of the log is committed (R13): not
// when nobody answers, and not by an owner whose epoch is over (R4).
func TestRetentionCommitsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	b, p := bounded(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.host.Retain(gone, b.reliable())
	if err := first(p); p.Log.Start() != 0 || err != nil {
		t.Fatalf("without a commit the log starts at %d, its first message: %v", p.Log.Start(), err)
	}
	p.Epoch--
	b.host.Retain(t.Context(), b.reliable())
	p.Epoch++
	if err := first(p); p.Log.Start() != 0 || err != nil {
		t.Fatalf("under an old epoch the log starts at %d, its first message: %v", p.Log.Start(), err)
	}
	b.host.Retain(t.Context(), b.reliable())
	m := b.meta.View().Partition(p.Key.Topic, 0)
	if m.LogStart < 40 || p.Log.Start() != m.LogStart {
		t.Errorf("the log starts at %d, committed is %d", p.Log.Start(), m.LogStart)
	}
	var trimmed *storage.Trimmed
	if err := first(p); !errors.As(err, &trimmed) || trimmed.LogStart != m.LogStart {
		t.Errorf("the first message: %v", err)
	}
}

// Damage does not keep a topic from being bounded: what could not be read is
// made LOST by command, and only then passed (R18).
func TestRetentionPassesDamage(t *testing.T) {
	t.Parallel()
	b, p := bounded(t)
	p.Past.SawDamage(storage.Damage{From: 3, To: 5, File: "f", Err: errors.New("bad")})
	status := func(offset uint64) state.RangeStatus {
		return b.meta.View().Partition(p.Key.Topic, 0).Range(offset).Status
	}
	await(t, func() bool { return status(3) == state.RangeOrphaned })
	if status(2) != state.RangeSealed || status(4) != state.RangeOrphaned || status(5) != state.RangeOpen {
		t.Errorf("around the damage: %v %v %v", status(2), status(4), status(5))
	}
	b.host.Retain(t.Context(), b.reliable())
	m := b.meta.View().Partition(p.Key.Topic, 0)
	if m.LogStart < 40 || p.Log.Start() != m.LogStart || len(m.Ranges) != 1 {
		t.Errorf("the log starts at %d, committed is %d with ranges %+v", p.Log.Start(), m.LogStart, m.Ranges)
	}
}
