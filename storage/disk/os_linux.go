package disk

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxVec is the kernel's limit of buffers in one call (IOV_MAX).
const maxVec = 1024

// writeVec writes all buffers with as few calls as the kernel allows.
func (f *osFile) writeVec(bufs [][]byte, off int64) error {
	for len(bufs) > 0 {
		n, err := unix.Pwritev(f.fd, bufs[:min(len(bufs), maxVec)], off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "write", Path: f.f.Name(), Err: err}
		}
		off += int64(n)
		whole := 0
		for whole < len(bufs) && n >= len(bufs[whole]) {
			n -= len(bufs[whole])
			whole++
		}
		bufs = bufs[whole:]
		if len(bufs) == 0 {
			return nil
		}
		if whole > 0 && n == 0 {
			continue
		}
		// The call ended inside a buffer, or wrote nothing at all: the rest of
		// that buffer goes alone, which either makes progress or tells why not.
		rest := bufs[0][n:]
		if _, err := f.f.WriteAt(rest, off); err != nil {
			return err
		}
		off += int64(len(rest))
		bufs = bufs[1:]
	}
	return nil
}

func (f *osFile) datasync() error {
	for {
		if err := unix.Fdatasync(f.fd); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeBack starts the write-back and waits for none: SYNC_FILE_RANGE_WRITE alone
// leaves the errors of what is under way to the next sync. What it returns itself,
// such as a block that could not be allocated, no sync may tell again. Where the
// file or a filter of system calls knows no such call, there is no write-back.
func (f *osFile) writeBack(off, n int64) error {
	for {
		err := unix.SyncFileRange(f.fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM),
			errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESPIPE):
			return nil
		default:
			return err
		}
	}
}

func syncDir(d *os.File) error { return d.Sync() }

// refuseNetwork returns ErrNetwork when dir lies on a file system of another
// machine. FUSE may be one too, but also is how local ones are tried out.
func refuseNetwork(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if kind := networkKind(int64(s.Type)); kind != "" {
		return &fs.PathError{Op: "lock", Path: dir, Err: networkError(kind)}
	}
	return nil
}

// networkKind names the network file system with the given magic number, or is
// empty. The field's type differs by architecture; the low 32 bits count.
func networkKind(magic int64) string {
	switch uint32(magic) {
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "smb"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	}
	return ""
}

func freeSpace(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Space{Free: s.Bavail * uint64(s.Bsize), Total: s.Blocks * uint64(s.Bsize)}, nil
}
