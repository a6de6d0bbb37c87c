//go:build faults

package main

import (
	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/faults"
	"github.com/danubemq/danube/storage/disk"
)

// openFaults opens the port of faults and puts it into the configuration. DANUBE_FAULTS holds commands, separated by ";",
// that count before anything is opened. ready is what the ready line says of it.
func (a *app) openFaults(bc *broker.Config) (ready string, done func(), err error) {
	f, err := faults.Open(a.getenv("DANUBE_FAULTS"))
	if err != nil {
		return "", nil, fail.Usagef("DANUBE_FAULTS: %w", err)
	}
	bc.At, bc.Now, bc.FS = f.At, f.Now, f.Disk(disk.OS())
	bc.Peers.LeaseCheckOff = f.LeaseOff
	if c := f.Cold; c.Every > 0 {
		hurry(&bc.Storage, c)
	}
	return " faults=" + f.Addr(), f.Close, nil
}

// hurry has the cold tier's work done in seconds that takes hours otherwise, on pieces that a test can send.
func hurry(s *broker.Storage, c faults.Cold) {
	s.SegmentAge, s.Durable.LocalAge = c.Every, c.Grace
	u := &s.Durable.Upkeep
	u.Every, u.Collect, u.Audit = c.Every, c.Every, c.Every
	l := &u.Limits
	l.Most, l.Ratio, l.Enough, l.Hot = 128<<10, 2, 1, 4
	l.Patience, l.Settled, l.Grace = c.Every, c.Every, c.Grace
}
