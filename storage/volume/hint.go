package volume

import (
	"encoding/binary"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// Scan judges the file by its bytes, all of them; visit is called with each batch.
func (f *File) Scan(visit func(batch.Batch)) (*recovery.Found, error) {
	cache := f.shelf.Cache
	if err := cache.Drop(&f.Handle); err != nil { // it may be open for reading
		return nil, err
	}
	h, err := cache.Acquire(&f.Handle, disk.Write)
	if err != nil {
		return nil, err
	}
	defer cache.Release(&f.Handle, false)
	total, err := h.Size()
	if err != nil {
		return nil, err
	}
	return f.place().Scan(h, total, visit)
}

// Cut takes what lies behind a size off the disk.
func (f *File) Cut(size int64) error {
	h, err := f.shelf.Cache.Acquire(&f.Handle, disk.Write)
	if err != nil {
		return err
	}
	defer f.shelf.Cache.Release(&f.Handle, true)
	if err := h.Truncate(size); err != nil {
		return fmt.Errorf("cut %s at %d: %w", f.Handle.Name, size, err)
	}
	return nil
}

// Hint reads what an earlier recovery of an unsealed file kept beside it, nil if
// there is none that fits.
func (f *File) Hint() (*segment.Footer, error) {
	s := f.shelf
	if _, err := s.FS.Stat(segment.HintName(f.Handle.Name)); err != nil {
		return nil, nil
	}
	h, err := s.Cache.Acquire(&f.Handle, 0)
	if err != nil {
		return nil, err
	}
	defer s.Cache.Release(&f.Handle, false)
	header, size, err := f.place().Header(h)
	if err != nil {
		return nil, err
	}
	total, err := h.Size()
	if err != nil {
		return nil, err
	}
	raw, err := header.Append(make([]byte, 0, size))
	if err != nil {
		return nil, err
	}
	footer, ok := segment.ReadHint(s.FS, f.Handle.Name, total, binary.LittleEndian.Uint32(raw[size-4:]))
	if !ok {
		s.Log.Warn("hint does not fit its segment, scanning", "file", segment.HintName(f.Handle.Name))
		return nil, nil
	}
	return footer, nil
}

// WriteHint keeps the outcome of a scan, so that no later start repeats it. That it
// could not be written costs that scan.
func (f *File) WriteHint(footer *segment.Footer, table *segment.Producers) {
	if err := segment.WriteHint(f.shelf.FS, f.Handle.Name, footer, table); err != nil {
		f.shelf.Log.Warn("hint not written", "file", f.Handle.Name, "err", err)
	}
}
