package pipe

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/cmd/danube/settings"
)

// lineReader cuts any bytes into lines. A line is what stands between newlines; a last one without a newline counts,
// an empty one too.
type lineReader struct {
	r     *bufio.Reader
	limit int    // longest line in bytes, without its newline
	long  []byte // of a line that is longer than the reader's buffer
	line  uint64 // number of the line that next returned last, from 1
}

// tooLongError is a line over the limit; the lines behind it can be read.
type tooLongError struct {
	bytes int64
	limit int
}

func (e *tooLongError) Error() string {
	return fmt.Sprintf("%d bytes are more than a message may have (%s)", e.bytes, settings.FormatSize(int64(e.limit)))
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), limit: limit}
}

// next returns a line without its newline. It lies in a buffer that the next call
// overwrites. At the end it is io.EOF; a *tooLongError concerns one line only.
func (l *lineReader) next() ([]byte, error) {
	l.line++
	part, err := l.r.ReadSlice('\n')
	if err == nil {
		return l.fits(part[:len(part)-1])
	}
	l.long = l.long[:0]
	total := int64(0)
	for {
		total += int64(len(part))
		if total <= int64(l.limit)+1 {
			l.long = append(l.long, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		part, err = l.r.ReadSlice('\n')
	}
	if err == nil {
		total-- // the newline
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil && total == 0 {
		return nil, io.EOF
	}
	if total > int64(l.limit) {
		return nil, &tooLongError{bytes: total, limit: l.limit}
	}
	return l.long[:total], nil
}

func (l *lineReader) fits(line []byte) ([]byte, error) {
	if len(line) > l.limit {
		return nil, &tooLongError{bytes: int64(len(line)), limit: l.limit}
	}
	return line, nil
}
