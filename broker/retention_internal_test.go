package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// bounded runs a broker with a topic that is to keep 128 KiB in segments of 64 KiB, and holds a MiB.
func bounded(t *testing.T) (*Broker, *partition) {
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
func first(p *partition) error {
	r := p.log.Reader(0)
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
	b, p := bounded(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.applyRetention(gone)
	if err := first(p); p.log.Start() != 0 || err != nil {
		t.Fatalf("without a commit the log starts at %d, its first message: %v", p.log.Start(), err)
	}
	p.epoch--
	b.applyRetention(t.Context())
	p.epoch++
	if err := first(p); p.log.Start() != 0 || err != nil {
		t.Fatalf("under an old epoch the log starts at %d, its first message: %v", p.log.Start(), err)
	}
	b.applyRetention(t.Context())
	m := b.meta.View().Partition(p.key.topic, 0)
	if m.LogStart < 40 || p.log.Start() != m.LogStart {
		t.Errorf("the log starts at %d, committed is %d", p.log.Start(), m.LogStart)
	}
	var trimmed *storage.Trimmed
	if err := first(p); !errors.As(err, &trimmed) || trimmed.LogStart != m.LogStart {
		t.Errorf("the first message: %v", err)
	}
}

// Damage does not keep a topic from being bounded: what could not be read is
// made LOST by command, and only then passed (R18).
func TestRetentionPassesDamage(t *testing.T) {
	b, p := bounded(t)
	p.sawDamage(storage.Damage{From: 3, To: 5, File: "f", Err: errors.New("bad")})
	status := func(offset uint64) state.RangeStatus {
		return b.meta.View().Partition(p.key.topic, 0).Range(offset).Status
	}
	await(t, func() bool { return status(3) == state.RangeOrphaned })
	if status(2) != state.RangeSealed || status(4) != state.RangeOrphaned || status(5) != state.RangeOpen {
		t.Errorf("around the damage: %v %v %v", status(2), status(4), status(5))
	}
	b.applyRetention(t.Context())
	m := b.meta.View().Partition(p.key.topic, 0)
	if m.LogStart < 40 || p.log.Start() != m.LogStart || len(m.Ranges) != 1 {
		t.Errorf("the log starts at %d, committed is %d with ranges %+v", p.log.Start(), m.LogStart, m.Ranges)
	}
}

// What could not be committed is tried again, what is committed is not, and an
// owner whose epoch is over decides nothing (R4).
func TestDamageIsCommittedOnce(t *testing.T) {
	b, p := bounded(t)
	if !p.damaged.found(storage.Damage{From: 3, To: 5, File: "f", Err: errors.New("bad")}) { // without waking the keeper
		t.Fatal("known already")
	}
	status := func() state.RangeStatus { return b.meta.View().Partition(p.key.topic, 0).Range(3).Status }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if left := b.damage.reconcile(gone); !left || status() != state.RangeOpen {
		t.Errorf("without a commit: left %t, %v", left, status())
	}
	p.epoch--
	if left := b.damage.reconcile(t.Context()); left || status() != state.RangeOpen {
		t.Errorf("under an old epoch: left %t, %v", left, status())
	}
	p.epoch++
	if left := b.damage.reconcile(t.Context()); left || status() != state.RangeOrphaned {
		t.Errorf("then: left %t, %v", left, status())
	}
	before := b.meta.View().Hash()
	index := b.meta.View().Index()
	if left := b.damage.reconcile(t.Context()); left || b.meta.View().Index() != index || b.meta.View().Hash() != before {
		t.Errorf("once more: left %t, index %d after %d", left, b.meta.View().Index(), index)
	}
}

// What is committed already is not committed again, and what nobody may decide yet waits.
func TestUnmarkedDamage(t *testing.T) {
	m := &state.Partition{Epoch: 4, Ranges: []state.Range{
		{Start: 10, End: 20, Status: state.RangeSealed}, {Start: 20, End: 30, Status: state.RangeOrphaned},
		{Start: 40, End: 50, Status: state.RangeLost}, {Start: 50, End: 60, Status: state.RangeSealed}, {Start: 60, Status: state.RangeOpen},
	}}
	for name, test := range map[string]struct {
		from, to uint64
		want     [][2]uint64
	}{
		"inside of one range":                 {12, 14, [][2]uint64{{12, 14}}},
		"known already":                       {20, 30, nil},
		"lost already":                        {40, 50, nil},
		"in a plain gap and below the start":  {0, 10, nil},
		"partly known":                        {15, 25, [][2]uint64{{15, 20}}},
		"over all of it, the open one too":    {0, 70, [][2]uint64{{10, 20}, {50, 60}, {60, 70}}},
		"nothing, as of a file without bytes": {12, 12, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := unmarked(m, storage.Damage{From: test.from, To: test.to})
			if len(got) != len(test.want) {
				t.Fatalf("%+v", got)
			}
			for i, w := range test.want {
				if g := got[i]; g.From != w[0] || g.To != w[1] || g.Epoch != 4 || g.Status != state.RangeOrphaned {
					t.Errorf("%+v, want %v", g, w)
				}
			}
		})
	}
}
