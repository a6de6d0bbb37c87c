package keeper

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// spool is a segment that is put together in a temporary file. It is never synced: it does not outlive its process.
type spool struct {
	fs   disk.FS
	name string
	file disk.File
	at   int64  // bytes in the file
	buf  []byte // that follow them
	crc  uint32 // of what is in the file
	sum  *segment.Summary
	last uint32 // once it is sealed: the CRC by which the segment is known
}

const spoolBuffer = 64 << 10

// newSpool makes a file that begins with a header.
func newSpool(fs disk.FS, name string, h segment.Header) (*spool, error) {
	header, err := h.Append(nil)
	if err != nil {
		return nil, err
	}
	f, err := fs.Open(name, disk.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("make temporary file: %w", err)
	}
	return &spool{fs: fs, name: name, file: f, sum: segment.NewSummary(header, h.Base), buf: header}, nil
}

// add appends a batch whose CRCs were checked, as it is.
func (s *spool) add(b batch.Batch) error {
	s.sum.Add(b)
	return s.append(b)
}

func (s *spool) append(b []byte) error {
	s.buf = append(s.buf, b...)
	if len(s.buf) < spoolBuffer {
		return nil
	}
	return s.flush()
}

func (s *spool) flush() error {
	if _, err := s.file.WriteAt(s.buf, s.at); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	s.crc = crc32.Update(s.crc, castagnoli(), s.buf)
	s.at += int64(len(s.buf))
	if s.buf = s.buf[:0]; cap(s.buf) > 4*spoolBuffer {
		s.buf = nil // a large batch passed
	}
	return nil
}

// seal appends the footer, with the producer table as it stands behind the last batch.
func (s *spool) seal(p *segment.Producers) error {
	footer := s.sum.Footer().Append(nil, p)
	s.last = segment.Sum(footer)
	if err := s.append(footer); err != nil {
		return err
	}
	return s.flush()
}

// body is what is uploaded.
func (s *spool) body() cold.Body { return cold.Body{At: s.file, Size: s.at, CRC: s.crc} }

// remove gives the file up.
func (s *spool) remove() error {
	return errors.Join(s.file.Close(), s.fs.Remove(s.name))
}
