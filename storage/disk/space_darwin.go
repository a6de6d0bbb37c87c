package disk

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// refuseNetwork returns ErrNetwork when dir lies on a file system of another machine.
func refuseNetwork(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	switch kind := unix.ByteSliceToString(s.Fstypename[:]); kind {
	case "nfs", "smbfs", "afpfs", "webdav":
		return &fs.PathError{Op: "lock", Path: dir, Err: networkError(kind)}
	}
	return nil
}

func freeSpace(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Space{Free: s.Bavail * uint64(s.Bsize), Total: s.Blocks * uint64(s.Bsize)}, nil
}
