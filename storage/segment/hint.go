package segment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/danubemq/danube/storage/disk"
)

// HintName is the name of the file beside an unsealed segment that holds what
// its footer would be, given the segment's.
func HintName(segment string) string { return strings.TrimSuffix(segment, nameSuffix) + hintSuffix }

// WriteHint writes the hint of an unsealed segment. It is not synced: a hint that
// a crash loses is made again.
func WriteHint(fsys disk.FS, segment string, f *Footer, p *Producers) error {
	file, err := fsys.Open(HintName(segment), disk.Create)
	if err != nil {
		return fmt.Errorf("write hint: %w", err)
	}
	data := f.Append(nil, p)
	_, err = file.WriteAt(data, 0)
	if err == nil {
		err = file.Truncate(int64(len(data)))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write hint: %w", err)
	}
	return nil
}

// ReadHint reads the hint of a segment of the given size whose header has the
// given CRC. False: there is none, or it is not of this file as it is now; the
// segment has to be scanned. What it says of the segment was true when it was
// written; the bytes of the segment themselves are not looked at.
func ReadHint(fsys disk.FS, segment string, size int64, headerCRC uint32) (*Footer, bool) {
	data, err := disk.ReadFile(fsys, HintName(segment))
	if err != nil {
		return nil, false
	}
	f, err := parseFooter(data)
	if err != nil || f.DataEnd != size || f.HeaderCRC != headerCRC {
		return nil, false
	}
	return f, true
}
