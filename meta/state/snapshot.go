package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/records"
)

// A snapshot is: magic, version u8 · records, see package records, each a msgpack map · an end record that holds the number
// of records before it. Records come in key order, so that equal states give equal bytes. Whole
// cursors are written here and nowhere else. Its checksum is the snapshot store's.
const (
	snapshotMagic   = "DNBM"
	snapshotVersion = 2 // 1, which has nothing of the cold tier, is written while there is nothing of it
)

const (
	recordHead uint8 = iota + 1
	recordNamespace
	recordStore
	recordTopic
	recordPartition
	recordSubscription
	recordEnd
	recordGarbage
)

// snapshotHead holds what is not in a table.
type snapshotHead struct {
	Index           uint64  `msgpack:"i,omitempty"`
	Cluster         Cluster `msgpack:"c"`
	NextIncarnation uint64  `msgpack:"n"`
	NextSub         uint64  `msgpack:"s"`
}

type snapshotEnd struct {
	Records uint64 `msgpack:"n"`
}

// WriteTo writes the view as a snapshot. It may run while the state goes on.
func (v *View) WriteTo(w io.Writer) (int64, error) {
	n, err := v.write(w, v.index)
	if err != nil {
		return n, fmt.Errorf("write metadata snapshot: %w", err)
	}
	return n, nil
}

// Hash returns a hash over everything but the index: equal on all brokers that have applied the same commands (I16).
func (v *View) Hash() [sha256.Size]byte {
	h := sha256.New()
	if _, err := v.write(h, 0); err != nil {
		panic(fmt.Sprintf("state: hash a valid state: %v", err)) // neither a hash nor the encoder of our records can fail
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (v *View) write(to io.Writer, index uint64) (int64, error) {
	w := &recordWriter{w: records.NewWriter(to, append([]byte(snapshotMagic), v.version()))}
	w.put(recordHead, &snapshotHead{index, v.cluster, v.nextIncarnation, v.nextSub})
	putAll(w, recordNamespace, v.Namespaces())
	putAll(w, recordStore, v.Stores())
	putAll(w, recordTopic, values(v.topics.All()))
	putAll(w, recordPartition, values(v.partitions.All()))
	putAll(w, recordSubscription, values(v.subs.All()))
	putAll(w, recordGarbage, v.Garbage())
	w.put(recordEnd, &snapshotEnd{w.w.Count()})
	n, err := w.w.Flush()
	return n, errors.Join(w.err, err)
}

// recordWriter encodes records.
type recordWriter struct {
	w   *records.Writer
	buf bytes.Buffer
	err error
}

func putAll[R any](w *recordWriter, kind uint8, list iter.Seq[R]) {
	for r := range list {
		if w.put(kind, r); w.err != nil {
			return
		}
	}
}

func (w *recordWriter) put(kind uint8, record any) {
	if w.err != nil {
		return
	}
	w.buf.Reset()
	if w.err = encodeRecord(&w.buf, record); w.err == nil {
		w.w.Put(kind, w.buf.Bytes())
	}
}

// version is the lowest that says all there is: an older release reads what it understands and refuses the rest.
func (v *View) version() uint8 {
	if v.objects.Len() > 0 || v.cluster.Audited > 0 {
		return 2
	}
	for st := range v.Stores() {
		if st.Cuts > 0 {
			return 2
		}
	}
	for _, p := range v.partitions.All() {
		if p.Catalog != nil || slices.ContainsFunc(p.Ranges, func(r Range) bool { return !r.Exporter.IsZero() }) {
			return 2
		}
	}
	return 1
}

// Restore reads a snapshot: ErrNewerCommand if a later release wrote it, ErrDamaged if it is not whole. It allocates
// in proportion to the bytes that r really holds.
func Restore(r io.Reader) (*State, error) {
	s, err := restore(r)
	if err != nil {
		return nil, fmt.Errorf("restore metadata snapshot: %w", err)
	}
	return s, nil
}

func restore(from io.Reader) (*State, error) {
	r, head, err := records.NewReader(from, len(snapshotMagic)+1)
	if err != nil {
		return nil, fmt.Errorf("%w: read head: %w", ErrDamaged, err)
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a metadata snapshot", ErrDamaged)
	}
	if v := head[len(snapshotMagic)]; v == 0 || v > snapshotVersion {
		return nil, fmt.Errorf("%w (snapshot version %d, this release knows %d)", ErrNewerCommand, v, snapshotVersion)
	}
	s := &State{View: newView()}
	for n := uint64(0); ; n++ {
		kind, b, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrDamaged, n, err)
		}
		if kind == recordEnd {
			return s, checkEnd(r, b, n)
		}
		if (n == 0) != (kind == recordHead) {
			return nil, fmt.Errorf("%w: record %d of kind %d", ErrDamaged, n, kind)
		}
		if err := s.load(kind, b); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
	}
}

func checkEnd(r *records.Reader, b []byte, count uint64) error {
	var end snapshotEnd
	if err := decodeRecord(b, &end); err != nil {
		return fmt.Errorf("%w: end record: %w", ErrDamaged, err)
	}
	if end.Records != count {
		return fmt.Errorf("%w: %d records of %d", ErrDamaged, count, end.Records)
	}
	if !r.Ended() {
		return fmt.Errorf("%w: bytes after the end", ErrDamaged)
	}
	return nil
}

// load puts one record in its table.
func (s *State) load(kind uint8, b []byte) error {
	switch kind {
	case recordHead:
		h, err := loadRecord[snapshotHead](b)
		s.index, s.cluster, s.nextIncarnation, s.nextSub = h.Index, h.Cluster, h.NextIncarnation, h.NextSub
		s.decideAll()
		return err
	case recordNamespace:
		n, err := loadRecord[Namespace](b)
		s.namespaces.Set(n.Name, n)
		return err
	case recordStore:
		st, err := loadRecord[Store](b)
		s.stores.Set(st.ID, st)
		return err
	case recordTopic:
		t, err := loadRecord[Topic](b)
		s.topics.Set(t.ID, t)
		if !t.Deleted() {
			s.names.Set(t.Name, t.ID)
		}
		return err
	case recordPartition:
		p, err := loadRecord[Partition](b)
		s.put(*p)
		for seg := range p.Catalog.All() {
			s.objects.Add(seg)
		}
		return err
	case recordGarbage:
		g, err := loadRecord[catalog.Garbage](b)
		s.objects.Discard(*g)
		return err
	case recordSubscription:
		sub, err := loadRecord[Subscription](b)
		s.subs.Set(sub.ID, sub)
		s.subNames.Set(subKey{sub.Topic, sub.Name}, sub.ID)
		return err
	}
	return fmt.Errorf("%w (snapshot record kind %d)", ErrNewerCommand, kind)
}

func loadRecord[R any](b []byte) (*R, error) {
	r := new(R)
	if err := decodeRecord(b, r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return r, nil
}
