package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
)

// Frame is one commit round on its way to the journal. Its memory is kept from
// round to round; what it is given it refers to until it was put or reset.
type Frame struct {
	head []byte   // and the entries
	vec  [][]byte // place for the head, then the data
	data int64    // bytes of it
}

// Piece is what a round has for one segment file.
type Piece struct {
	ID     hotdir.ID
	Base   uint64 // of the segment file, and its epoch
	Epoch  uint64
	Pos    int64    // in that file
	Header []byte   // of the file, when the piece is the first of it
	Bufs   [][]byte // whole batches
}

// Reset makes the frame empty.
func (f *Frame) Reset() {
	f.head, f.vec, f.data = append(f.head[:0], make([]byte, FrameHead)...), append(f.vec[:0], nil), 0
}

// Add puts a piece behind those that are in the frame.
func (f *Frame) Add(p Piece) {
	size := len(p.Header)
	if size > 0 {
		f.vec = append(f.vec, p.Header)
	}
	digest := batch.Checksum(p.Header)
	for _, buf := range p.Bufs {
		size += len(buf)
		for b := batch.Batch(buf); len(b) > 0; b = b[b.Len():] {
			digest = updateDigest(digest, b)
		}
	}
	f.vec = append(f.vec, p.Bufs...)
	f.head = appendEntry(f.head, entry{
		id: p.ID, base: p.Base, epoch: p.Epoch, pos: p.Pos, length: uint32(size), head: uint32(len(p.Header)), digest: digest,
	})
	f.data += int64(size)
}

// finish fills in the head.
func (f *Frame) finish(nonce, number uint64) {
	finishHead(f.head, nonce, number, f.data)
	f.vec[0] = f.head
}

// finishHead fills in the head of a frame whose entries are in b and whose data
// has data bytes.
func finishHead(b []byte, nonce, number uint64, data int64) {
	binary.LittleEndian.PutUint32(b, frameMagic)
	binary.LittleEndian.PutUint64(b[8:], nonce)
	binary.LittleEndian.PutUint64(b[16:], number)
	binary.LittleEndian.PutUint32(b[24:], uint32((len(b)-FrameHead)/EntrySize))
	binary.LittleEndian.PutUint32(b[28:], 0)
	binary.LittleEndian.PutUint64(b[32:], uint64(data))
	binary.LittleEndian.PutUint32(b[4:], batch.Checksum(b[8:]))
}

// Put writes a frame; [Journal.Sync] makes it durable. Before a byte is written,
// covered is told the use of the span from which on the journal covers the files
// of the frame. It waits for spans that are not clean yet. Errors: ErrSpace, what
// [Journal.Fail] was given, those of writing.
func (j *Journal) Put(f *Frame, covered func(use uint64)) error {
	j.frames.Lock()
	defer j.frames.Unlock()
	j.number++
	f.finish(j.nonce, j.number)
	n := int64(len(f.head)) + f.data
	pos, use, err := j.place(n)
	if err != nil {
		j.number--
		return err
	}
	if pad := n % Block; pad > 0 {
		f.vec = append(f.vec, j.zeros[:Block-pad])
	}
	covered(use)
	err = j.file.WriteVec(f.vec, pos)
	clear(f.vec)
	if disk.NoSpace(err) { // a file system that writes every block anew
		return ErrSpace
	}
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// Forget notes that the files of a partition below an offset were given up. It
// need not be synced: a power loss that takes it may take the removal of the
// files too, and what comes back lies below the log's start.
func (j *Journal) Forget(id hotdir.ID, below uint64) error {
	j.frames.Lock()
	defer j.frames.Unlock()
	j.number++
	frame := appendEntry(make([]byte, FrameHead, Block), entry{id: id, kind: entryGone, base: below})
	finishHead(frame, j.nonce, j.number, 0)
	pos, _, err := j.place(int64(len(frame)))
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(frame[:Block], pos); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}
