package disk

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	tests := map[string]struct {
		magic int64
		want  string
	}{
		"nfs":                   {unix.NFS_SUPER_MAGIC, "nfs"},
		"smb":                   {unix.SMB_SUPER_MAGIC, "smb"},
		"cifs":                  {unix.CIFS_SUPER_MAGIC, "smb"},
		"cifs, sign extended":   {int64(int32(unix.CIFS_SUPER_MAGIC - 1<<32)), "smb"},
		"smb2":                  {unix.SMB2_SUPER_MAGIC, "smb"},
		"ext4":                  {unix.EXT4_SUPER_MAGIC, ""},
		"xfs":                   {unix.XFS_SUPER_MAGIC, ""},
		"tmpfs":                 {unix.TMPFS_MAGIC, ""},
		"fuse, used to test on": {unix.FUSE_SUPER_MAGIC, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := networkKind(test.magic); got != test.want {
				t.Fatalf("judged %q, want %q", got, test.want)
			}
		})
	}
	if err := networkError("nfs"); !errors.Is(err, ErrNetwork) {
		t.Fatalf("%v is no ErrNetwork", err)
	}
}

// TestFailedSyncOfTheSystemIsFinal hangs a pipe, which cannot be synced, behind
// a file, and then a healthy file.
func TestFailedSyncOfTheSystemIsFinal(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { must(t, errors.Join(r.Close(), w.Close())) }()
	healthy, err := os.Create(t.TempDir() + "/f")
	must(t, err)
	f := &osFile{f: healthy, fd: int(w.Fd())}
	wantIs(t, f.Datasync(), unix.EINVAL)
	f.fd = int(healthy.Fd())
	wantIs(t, f.Datasync(), unix.EINVAL)
	must(t, f.Close())
}

// TestFailedWriteBackOfTheSystemIsFinal: also for the sync. What knows no write-back does without.
func TestFailedWriteBackOfTheSystemIsFinal(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer func() { must(t, errors.Join(r.Close(), w.Close())) }()
	healthy, err := os.Create(t.TempDir() + "/f")
	must(t, err)
	f := &osFile{f: healthy, fd: int(w.Fd())}
	must(t, f.WriteBack(0, 1))
	f.fd = -1
	wantIs(t, f.WriteBack(0, 1), unix.EBADF)
	f.fd = int(healthy.Fd())
	wantIs(t, f.WriteBack(0, 1), unix.EBADF)
	wantIs(t, f.Datasync(), unix.EBADF)
	must(t, f.Close())
}

func TestCommitRoundAllocatesNothing(t *testing.T) {
	f := open(t, OS(), t.TempDir()+"/f", Create)
	bufs := [][]byte{make([]byte, 100), make([]byte, 200), make([]byte, 300)}
	one := make([]byte, 100)
	allocs := testing.AllocsPerRun(50, func() {
		must(t, f.WriteVec(bufs, 0))
		_, err := f.WriteAt(one, 0)
		must(t, err)
		_, err = f.ReadAt(one, 0)
		must(t, err)
		must(t, f.Datasync())
	})
	if allocs != 0 {
		t.Fatalf("%.1f allocations a round", allocs)
	}
}
