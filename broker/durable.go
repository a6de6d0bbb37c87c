package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/depot"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
)

// testTime bounds the self-test of the cold tier at the start. A store that is away
// then is tested again beside: the broker serves meanwhile, and nothing is exported.
const testTime = 5 * time.Second

// openCold opens the store of the cold tier, if there is to be one. What will not
// come right by itself stops the start: a bucket that does not exist, a store that
// several brokers must not share.
func (b *Broker) openCold(ctx context.Context) error {
	d := &b.cfg.Storage.Durable
	if d.URL == "" {
		return nil
	}
	known, err := b.knownFolder()
	if err != nil {
		return err
	}
	if b.cold, err = cold.Open(ctx, cold.Config{URL: d.URL, Known: known, Drivers: d.Drivers, Now: b.cfg.Now, Log: b.log, Metrics: b.cfg.Metrics}); err != nil {
		return fmt.Errorf("open the cold tier: %w", err)
	}
	if known == "" && b.cold.Identity() != "" {
		if err := disk.WriteFileAtomic(b.cfg.FS, b.knownFile(), []byte(b.cold.String()+"\n"+b.cold.Identity()+"\n")); err != nil {
			return fmt.Errorf("remember the cold tier: %w", err)
		}
	}
	test, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	err = b.cold.Check(test)
	failed, _ := errors.AsType[*cold.Error](err)
	switch {
	case err == nil:
		b.coldTested = true
	case errors.Is(err, cold.ErrConditions) && !b.cfg.Peers.Join:
		b.log.Warn("the store of the cold tier does not honour conditional writes: no second broker may use it", "store", b.cold, "err", err)
		b.coldTested = true
	case errors.Is(err, cold.ErrConditions):
		return fmt.Errorf("%w: the brokers of a cluster must not share it", err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil && !failed.Cause.Retriable() && failed.Cause != cold.Canceled:
		return err
	default:
		b.log.Warn("the cold tier is away; nothing is exported until its self-test is passed", "err", err)
	}
	return nil
}

// knownFile says which folder this data directory has used as its cold tier: the
// store's name, and what its marker says, a line each.
func (b *Broker) knownFile() string { return filepath.Join(b.cfg.DataDir, "folder") }

// knownFolder is the mark of the folder that this data directory has used under
// the configured name: a mount that is absent at a start is not to be taken for an
// empty store. Empty: it has used none.
func (b *Broker) knownFolder() (string, error) {
	text, err := disk.ReadFile(b.cfg.FS, b.knownFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read which folder is the cold tier: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 3 || lines[1] == "" || lines[2] != "" {
		b.log.Warn("the file that says which folder is the cold tier is damaged: the folder is taken as it is", "file", b.knownFile())
		return "", nil
	}
	if name, err := cold.Name(b.cfg.Storage.Durable.URL); err != nil || name != lines[0] {
		return "", err // another was configured since
	}
	return lines[1], nil
}

// openDepot is a step of the start.
func (b *Broker) openDepot(context.Context) (err error) {
	if b.cold == nil {
		return nil
	}
	d := &b.cfg.Storage.Durable
	b.depot, err = depot.Open(depot.Config{
		Store: b.cold, Meta: b.meta, Self: b.self, Leased: b.leased, Alone: !b.cfg.Peers.Join, Tested: b.coldTested,
		Moved: func(id storage.PartitionID) { b.compareAgain(served.Key{Topic: id.Topic, N: id.Partition}) },
		Limits: depot.Limits{
			Memory: b.cfg.coldBytes(), SegmentAge: b.cfg.Storage.SegmentAge, LocalAge: d.LocalAge, LocalBytes: d.LocalBytes,
			Upkeep: d.Upkeep.Limits, UpkeepEvery: d.Upkeep.Every, CollectEvery: d.Upkeep.Collect, AuditEvery: d.Upkeep.Audit, AfterRun: d.Upkeep.AfterRun,
		},
		FS: b.cfg.FS, Dir: filepath.Join(b.cfg.DataDir, "cold"), Now: b.cfg.Now, At: b.cfg.At, Log: b.log, Metrics: b.cfg.Metrics,
	})
	return err
}

// coldTier is the cold tier as histories use it, nil if there is none.
func (b *Broker) coldTier() *history.Cold {
	if b.depot == nil {
		return nil
	}
	return &history.Cold{Part: b.depot.Part, Producers: b.depot.Producers}
}

// mostFound bounds what an audit lists.
const mostFound = 1000

// auditor compares the store of the cold tier with the catalogs; nil: there is none.
func (b *Broker) auditor() func(context.Context) (*protocol.AuditReport, error) {
	if b.depot == nil {
		return nil
	}
	return func(ctx context.Context) (*protocol.AuditReport, error) {
		out := &protocol.AuditReport{Store: b.cold.String(), Tallies: []protocol.AuditTally{}, Findings: []protocol.AuditFinding{}}
		var mu sync.Mutex // findings come from several goroutines
		report, err := b.depot.Audit(ctx, func(f upkeep.Finding) {
			mu.Lock()
			defer mu.Unlock()
			if len(out.Findings) == mostFound {
				out.More++
				return
			}
			out.Findings = append(out.Findings, protocol.AuditFinding{Key: f.Key, Verdict: f.Verdict.String(), Bytes: f.Size, Want: f.Want})
		})
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", b.cold, err)
		}
		for _, v := range slices.Sorted(maps.Keys(report)) {
			t := report[v]
			out.Tallies = append(out.Tallies, protocol.AuditTally{Verdict: v.String(), Sound: v.Sound(), Objects: t.Objects, Bytes: t.Bytes})
		}
		slices.SortFunc(out.Findings, func(x, y protocol.AuditFinding) int { return cmp.Compare(x.Key, y.Key) })
		return out, nil
	}
}

// exported returns once the cold tier has a partition up to an offset, as far as it
// comes to that within a time: what it then lacks, others copy from here.
func (b *Broker) exported(ctx context.Context, id storage.PartitionID, to uint64, within time.Duration) bool {
	if b.depot == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := b.depot.Urgent(ctx, id, to)
	if err != nil {
		b.log.Debug("not everything is in the cold tier before a partition moves", "topic_id", id.Topic, "partition", id.Partition, "to", to, "err", err)
	}
	return err == nil
}

// closeCold ends reading from the cold tier; what writes to it has returned.
func (b *Broker) closeCold() error {
	var errs []error
	if b.depot != nil {
		errs = append(errs, b.depot.Close())
	}
	if b.cold != nil {
		errs = append(errs, b.cold.Close())
	}
	return errors.Join(errs...)
}
