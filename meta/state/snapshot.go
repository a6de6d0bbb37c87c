package state

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
)

// A snapshot is: magic, version u8 · records, each kind u8 · length u32 little-endian · a msgpack map · an end record
// that holds the number of records before it. Records come in key order, so that equal states give equal bytes. Whole
// cursors are written here and nowhere else. Its checksum is the snapshot store's.
const (
	snapshotMagic   = "DNBM"
	snapshotVersion = 1
	maxRecord       = 64 << 20 // a cursor at its bounds takes a few MiB
)

const (
	recordHead uint8 = iota + 1
	recordNamespace
	recordStore
	recordTopic
	recordPartition
	recordSubscription
	recordEnd
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
	c := &countingWriter{w: w}
	b := bufio.NewWriterSize(c, 64<<10)
	err := v.write(b, v.index)
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return c.n, fmt.Errorf("write metadata snapshot: %w", err)
	}
	return c.n, nil
}

// Hash returns a hash over everything but the index: equal on all brokers that have applied the same commands (I16).
func (v *View) Hash() [sha256.Size]byte {
	h := sha256.New()
	b := bufio.NewWriterSize(h, 64<<10)
	if err := v.write(b, 0); err != nil {
		panic(fmt.Sprintf("state: hash a valid state: %v", err)) // neither a hash nor the encoder of our records can fail
	}
	b.Flush()
	return [sha256.Size]byte(h.Sum(nil))
}

func (v *View) write(b *bufio.Writer, index uint64) error {
	b.WriteString(snapshotMagic)
	b.WriteByte(snapshotVersion)
	w := &recordWriter{w: b}
	w.put(recordHead, &snapshotHead{index, v.cluster, v.nextIncarnation, v.nextSub})
	putAll(w, recordNamespace, v.Namespaces())
	putAll(w, recordStore, v.Stores())
	putAll(w, recordTopic, values(v.topics.all()))
	putAll(w, recordPartition, values(v.partitions.all()))
	putAll(w, recordSubscription, values(v.subs.all()))
	w.put(recordEnd, &snapshotEnd{w.n})
	return w.err
}

type recordWriter struct {
	w   *bufio.Writer
	buf bytes.Buffer
	n   uint64
	err error
}

func putAll[R any](w *recordWriter, kind uint8, records iter.Seq[R]) {
	for r := range records {
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
	if w.err = encodeRecord(&w.buf, record); w.err != nil {
		return
	}
	var head [5]byte
	head[0] = kind
	binary.LittleEndian.PutUint32(head[1:], uint32(w.buf.Len()))
	w.w.Write(head[:])
	_, w.err = w.w.Write(w.buf.Bytes()) // bufio keeps the first error
	w.n++
}

// Restore reads a snapshot: ErrNewerCommand if a later release wrote it, ErrDamaged if it is not whole. It allocates
// in proportion to the bytes that r really holds.
func Restore(r io.Reader) (*State, error) {
	s, err := restore(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("restore metadata snapshot: %w", err)
	}
	return s, nil
}

func restore(r *bufio.Reader) (*State, error) {
	var head [len(snapshotMagic) + 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: read head: %w", ErrDamaged, err)
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("%w: not a metadata snapshot", ErrDamaged)
	}
	if v := head[len(snapshotMagic)]; v != snapshotVersion {
		return nil, fmt.Errorf("%w (snapshot version %d, this release knows %d)", ErrNewerCommand, v, snapshotVersion)
	}
	s := &State{View: newView()}
	var buf bytes.Buffer
	for n := uint64(0); ; n++ {
		kind, err := readRecord(r, &buf)
		if err != nil {
			return nil, fmt.Errorf("%w: record %d: %w", ErrDamaged, n, err)
		}
		if kind == recordEnd {
			return s, checkEnd(r, buf.Bytes(), n)
		}
		if (n == 0) != (kind == recordHead) {
			return nil, fmt.Errorf("%w: record %d of kind %d", ErrDamaged, n, kind)
		}
		if err := s.load(kind, buf.Bytes()); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
	}
}

func readRecord(r *bufio.Reader, buf *bytes.Buffer) (kind uint8, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size := int64(binary.LittleEndian.Uint32(head[1:]))
	if size > maxRecord {
		return 0, fmt.Errorf("%d bytes", size)
	}
	buf.Reset()
	if _, err := io.CopyN(buf, r, size); err != nil {
		return 0, err
	}
	return head[0], nil
}

func checkEnd(r *bufio.Reader, b []byte, records uint64) error {
	var end snapshotEnd
	if err := decodeRecord(b, &end); err != nil {
		return fmt.Errorf("%w: end record: %w", ErrDamaged, err)
	}
	if end.Records != records {
		return fmt.Errorf("%w: %d records of %d", ErrDamaged, records, end.Records)
	}
	if _, err := r.ReadByte(); err != io.EOF {
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
		s.namespaces.set(n.Name, n)
		return err
	case recordStore:
		st, err := loadRecord[Store](b)
		s.stores.set(st.ID, st)
		return err
	case recordTopic:
		t, err := loadRecord[Topic](b)
		s.topics.set(t.ID, t)
		if !t.Deleted() {
			s.names.set(t.Name, t.ID)
		}
		return err
	case recordPartition:
		p, err := loadRecord[Partition](b)
		s.put(*p)
		return err
	case recordSubscription:
		sub, err := loadRecord[Subscription](b)
		s.subs.set(sub.ID, sub)
		s.subNames.set(subKey{sub.Topic, sub.Name}, sub.ID)
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

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
