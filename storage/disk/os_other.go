//go:build !linux

package disk

import (
	"fmt"
	"os"
	"runtime"
)

func (f *osFile) writeVec(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		if _, err := f.f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// datasync is a full sync: os.File.Sync is F_FULLFSYNC on darwin, where a plain
// fsync leaves the bytes in the drive's cache.
func (f *osFile) datasync() error { return f.f.Sync() }

// writeBack does nothing: the system has no such call.
func (f *osFile) writeBack(_, _ int64) error { return nil }

// syncDir does nothing on Windows, where a directory cannot be synced.
func syncDir(d *os.File) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
