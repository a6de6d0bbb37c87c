package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/danubemq/danube/meta/records"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/msgpackwalk"
)

// An encoded manifest is: magic, version u8 · records, see package records, each a msgpack map with short keys · CRC-32C
// u32 little-endian of everything before it. Fields may be added to records freely; what an older release must not pass
// over needs the next version.
const (
	magic     = "DNMF"
	version   = 1
	headBytes = len(magic) + 1
	crcBytes  = 4
)

// The kinds of records, in the order in which they come. Partitions follow their topic.
const (
	recordHead uint8 = iota + 1
	recordNamespace
	recordTopic
	recordPartition
	recordSubscription
	recordEnd
)

// ErrDamaged is wrapped by every error that says that bytes are not what was written.
var ErrDamaged = errors.New("manifest is damaged")

// VersionError refuses what a newer release wrote.
type VersionError struct {
	What         string
	Found, Known int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this binary reads up to %d: use the newer binary that wrote it", e.What, e.Found, e.Known)
}

type head struct {
	Cluster state.Cluster `msgpack:"c"`
	Index   uint64        `msgpack:"i,omitempty"`
	Time    int64         `msgpack:"t,omitempty"`
}

type end struct {
	Records uint64 `msgpack:"n"`
}

// Encode returns the bytes of the manifest: the same for equal ones.
func (m *Manifest) Encode() ([]byte, error) {
	var out bytes.Buffer
	w := &writer{to: records.NewWriter(&out, append([]byte(magic), version))}
	w.put(recordHead, &head{m.Cluster, m.Index, m.Time})
	for i := range m.Namespaces {
		w.put(recordNamespace, &m.Namespaces[i])
	}
	for i := range m.Topics {
		w.put(recordTopic, &m.Topics[i].Topic)
		for j := range m.Topics[i].Partitions {
			w.put(recordPartition, &m.Topics[i].Partitions[j])
		}
	}
	for i := range m.Subscriptions {
		w.put(recordSubscription, &m.Subscriptions[i])
	}
	w.put(recordEnd, &end{w.to.Count()})
	_, err := w.to.Flush()
	if err = errors.Join(w.err, err); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return binary.LittleEndian.AppendUint32(out.Bytes(), checksum(out.Bytes())), nil
}

type writer struct {
	to  *records.Writer
	buf bytes.Buffer
	err error
}

func (w *writer) put(kind uint8, record any) {
	if w.err != nil {
		return
	}
	w.buf.Reset()
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(&w.buf)
	e.UseCompactInts(true)
	if w.err = e.Encode(record); w.err == nil {
		w.to.Put(kind, w.buf.Bytes())
	}
}

// Decode reads what Encode wrote. Errors: ErrDamaged, *VersionError. It is safe on any bytes and keeps none of them.
func Decode(b []byte) (*Manifest, error) {
	if len(b) < headBytes+crcBytes || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: %d bytes without its magic", ErrDamaged, len(b))
	}
	body := b[:len(b)-crcBytes]
	if got, want := checksum(body), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return nil, fmt.Errorf("%w: CRC %08x, computed %08x", ErrDamaged, want, got)
	}
	if v := b[len(magic)]; v != version {
		return nil, &VersionError{What: "manifest", Found: int(v), Known: version}
	}
	r, _, err := records.NewReader(bytes.NewReader(body), headBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m := &Manifest{}
	for n := uint64(0); ; n++ {
		kind, b, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrDamaged, n, err)
		}
		if (n == 0) != (kind == recordHead) {
			return nil, fmt.Errorf("%w: record %d of kind %d", ErrDamaged, n, kind)
		}
		if kind == recordEnd {
			last, err := load[end](b)
			if err != nil || last.Records != n || !r.Ended() {
				return nil, fmt.Errorf("%w: %d records of %d: %w", ErrDamaged, n, last.Records, err)
			}
			return m, m.check()
		}
		if err := m.load(kind, b); err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrDamaged, n, err)
		}
	}
}

func (m *Manifest) load(kind uint8, b []byte) error {
	switch kind {
	case recordHead:
		h, err := load[head](b)
		m.Cluster, m.Index, m.Time = h.Cluster, h.Index, h.Time
		return err
	case recordNamespace:
		n, err := load[state.Namespace](b)
		m.Namespaces = append(m.Namespaces, n)
		return err
	case recordTopic:
		t, err := load[state.Topic](b)
		m.Topics = append(m.Topics, Topic{Topic: t})
		return err
	case recordPartition:
		p, err := load[Partition](b)
		if len(m.Topics) == 0 {
			return errors.New("a partition of no topic")
		}
		t := &m.Topics[len(m.Topics)-1]
		t.Partitions = append(t.Partitions, p)
		return err
	case recordSubscription:
		s, err := load[state.Subscription](b)
		m.Subscriptions = append(m.Subscriptions, s)
		return err
	}
	return fmt.Errorf("kind %d", kind)
}

func load[R any](b []byte) (r R, err error) {
	if err = msgpackwalk.Check(b); err == nil {
		err = msgpack.Unmarshal(b, &r)
	}
	return r, err
}

// check holds what readers rely on.
func (m *Manifest) check() error {
	for i := range m.Topics {
		t := &m.Topics[i]
		if i > 0 && bytes.Compare(m.Topics[i-1].ID[:], t.ID[:]) >= 0 {
			return fmt.Errorf("%w: topic %s after %s", ErrDamaged, t.ID, m.Topics[i-1].ID)
		}
		if n := len(t.Partitions); t.Deleted() && n > 0 || !t.Deleted() && n != int(t.Settings.Partitions) {
			return fmt.Errorf("%w: %d partitions of topic %s", ErrDamaged, n, t.Name)
		}
		for j := range t.Partitions {
			if err := t.Partitions[j].check(); err != nil {
				return fmt.Errorf("%w: %s:%d: %w", ErrDamaged, t.Name, j, err)
			}
		}
	}
	for i := range m.Subscriptions {
		s := &m.Subscriptions[i]
		t := m.Topic(s.Topic)
		if t == nil || t.Deleted() || len(s.Cursors) != len(t.Partitions) || len(s.Start) != len(t.Partitions) {
			return fmt.Errorf("%w: subscription %s of topic %s", ErrDamaged, s.Name, s.Topic)
		}
	}
	return nil
}

func (p *Partition) check() error {
	at := uint64(0)
	for i := range p.Ranges {
		r := &p.Ranges[i]
		open := r.Status == state.RangeOpen
		if len(r.Epochs) == 0 || r.Epochs[0].Start != r.Start || r.Start < at || open != (i == len(p.Ranges)-1 && r.End == 0) || !open && r.End <= r.Start {
			return fmt.Errorf("range [%d, %d) after %d", r.Start, r.End, at)
		}
		for j := 1; j < len(r.Epochs); j++ {
			if r.Epochs[j].Epoch <= r.Epochs[j-1].Epoch || r.Epochs[j].Start <= r.Epochs[j-1].Start || !open && r.Epochs[j].Start >= r.End {
				return fmt.Errorf("epoch %d from %d on", r.Epochs[j].Epoch, r.Epochs[j].Start)
			}
		}
		at = r.End
	}
	if !p.Superseded.Valid() {
		return errors.New("superseded offsets")
	}
	return nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
