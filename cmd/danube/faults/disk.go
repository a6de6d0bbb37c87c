package faults

import (
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// Disk is fsys with syncs that take as long as was ordered.
func (f *Faults) Disk(fsys disk.FS) disk.FS { return slowDisk{fsys, f} }

type slowDisk struct {
	disk.FS
	faults *Faults
}

func (d slowDisk) Open(name string, flags disk.Flags) (disk.File, error) {
	file, err := d.FS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return slowFile{file, d.faults}, nil
}

type slowFile struct {
	disk.File
	faults *Faults
}

// Datasync takes its time first: until it is over nothing is known to be durable.
func (s slowFile) Datasync() error {
	s.faults.stall(time.Duration(s.faults.syncing.Load()))
	return s.File.Datasync()
}

// stall returns after d, or when the port is closed.
func (f *Faults) stall(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.quit:
	}
}
