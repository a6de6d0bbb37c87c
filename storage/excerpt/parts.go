package excerpt

import (
	"errors"
	"fmt"
	"io"
	"sort"
)

// Parts is a run of bytes that lie in several places. The zero value is empty. It
// is safe for concurrent reading if the places are.
type Parts struct{ list []part }

// part is a run of them.
type part struct {
	at    io.ReaderAt
	from  int64 // position in at
	start int64 // position in the whole
	size  int64
}

// Size is how many bytes there are.
func (p *Parts) Size() int64 {
	if len(p.list) == 0 {
		return 0
	}
	last := &p.list[len(p.list)-1]
	return last.start + last.size
}

// Add adds bytes behind those that are there: size of them, from a position of at
// on, which stays readable as long as the parts are. Its type is comparable.
func (p *Parts) Add(at io.ReaderAt, from, size int64) {
	if n := len(p.list); n > 0 && p.list[n-1].at == at && p.list[n-1].from+p.list[n-1].size == from {
		p.list[n-1].size += size
		return
	}
	p.list = append(p.list, part{at: at, from: from, start: p.Size(), size: size})
}

// ReadAt is io.ReaderAt.
func (p *Parts) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d", off)
	}
	done := 0
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].start+p.list[i].size > off })
	for ; i < len(p.list) && done < len(b); i++ {
		x := &p.list[i]
		skip := off + int64(done) - x.start
		n := int(min(int64(len(b)-done), x.size-skip))
		got, err := x.at.ReadAt(b[done:done+n], x.from+skip)
		done += got
		if got < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // that place is shorter than was said
			}
			return done, err
		}
	}
	if done < len(b) {
		return done, io.EOF
	}
	return done, nil
}

// Bytes is b as a place for [Parts.Add]. It must not change.
func Bytes(b []byte) io.ReaderAt { return &memory{b} }

// memory is used by reference, so that two of them differ.
type memory struct{ b []byte }

// ReadAt is io.ReaderAt.
func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(p, m.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
