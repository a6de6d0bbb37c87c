package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/node"
	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/salvage"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/drivers"
	"github.com/danubemq/danube/storage/cold/gather"
	"github.com/danubemq/danube/storage/disk"
)

func (a *app) clusterRebuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild --from URL|DIR --data-dir D",
		Short: "Make lost metadata anew from a bucket, or from a stopped broker's own segments",
		Long: "For metadata that are gone or damaged and that no other broker can give again.\n\n" +
			"--from URL, the value of storage.durable.url, reads the cold tier of a cluster that is gone: topics, settings, catalogs\n" +
			"and subscriptions as far as the cluster has written them beside the data. D becomes the data directory of the first\n" +
			"broker of the new cluster; if it is one that still has segments, what they hold beyond the bucket is taken too. A cluster\n" +
			"that has written into the bucket within five minutes is alive, and refused.\n\n" +
			"--from DIR reads the headers and footers of the segment files in the data directory itself. What segments do not hold\n" +
			"(subscriptions, retention, topics without a message) is named.\n\n" +
			"Every message that can be read is read again at its offset. A new history begins: every partition goes on far above. The\n" +
			"metadata that were there are kept aside; in the bucket nothing is changed or deleted.",
		Args: wantArgs(),
	}
	file := addOfflineFlags(cmd)
	from := cmd.Flags().String("from", "", "`URL|DIR` that is read: a bucket or shared folder, or the data directory")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would come of it; nothing is changed")
	without := cmd.Flags().Bool("without-manifest", false, "go by objects alone, as if the cluster had written nothing beside them")
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *from == "" {
			return fail.Usagef("cluster rebuild: --from is missing")
		}
		j := rebuildJob{app: a, from: *from, dry: *dry, yes: *yes, without: *without}
		rep, err := j.run(cmd, *file)
		if err != nil {
			return fmt.Errorf("rebuild the metadata: %w", err)
		}
		if output.value == "json" {
			return render.JSON(a.out, rep)
		}
		return rep.Print(a.out)
	}
	return cmd
}

// rebuildJob is one call of cluster rebuild.
type rebuildJob struct {
	app     *app
	o       offline.Broker
	from    string
	dry     bool
	yes     bool
	without bool // manifests
	bucket  *offline.Bucket
}

func (j *rebuildJob) run(cmd *cobra.Command, file string) (_ *offline.Rebuilt, err error) {
	fromBucket := strings.Contains(j.from, "://")
	if j.o, err = j.app.offlineAnew(cmd, file, fromBucket); err != nil {
		return nil, err
	}
	if !fromBucket {
		if err := holds(j.o, j.from); err != nil {
			return nil, err
		}
	} else {
		closed, err := j.open(cmd.Context())
		if err != nil {
			return nil, err
		}
		defer closed()
	}
	if j.dry {
		return j.plan(cmd.Context())
	}
	return j.carryOut(cmd.Context())
}

// open reads the bucket.
func (j *rebuildJob) open(ctx context.Context) (closed func(), err error) {
	store, err := cold.Open(ctx, cold.Config{URL: j.from, Drivers: drivers.Open, Existing: true})
	if err != nil {
		return nil, fail.With(fail.Usage, err)
	}
	closed = func() { _ = store.Close() } // all that was written there was answered
	j.bucket, err = offline.ReadBucket(ctx, store, time.Now(), nil)
	if err != nil {
		closed()
		return nil, err
	}
	if j.without {
		j.bucket.Manifest = nil
	}
	return closed, nil
}

// plan says what would come of it.
func (j *rebuildJob) plan(ctx context.Context) (*offline.Rebuilt, error) {
	e := offline.Evidence{Bucket: j.bucket}
	if j.o.Store != (state.StoreID{}) {
		local, err := storage.Survey(disk.OS(), j.o.Dir)
		if err != nil {
			return nil, err
		}
		e.Local = &local
	}
	rep, _, _, err := offline.Plan(j.o, e)
	if err != nil {
		return nil, err
	}
	rep.DryRun = true
	has := false
	if e.Local != nil {
		has, err = storage.HasJournal(disk.OS(), j.o.Dir)
	}
	if has {
		rep.Notes = append(rep.Notes, "the journal may hold messages that are in no segment file yet; a rebuild writes them back first")
	}
	return rep, err
}

// question is what is asked before anything is changed.
func (j *rebuildJob) question() string {
	switch lost := meta.Inspect(j.o.MetaDir(), true); {
	case j.bucket != nil && lost == nil:
		return "the metadata in " + j.o.Dir + " can be read; replace them by what " + j.bucket.Store.String() + " holds"
	case j.bucket != nil:
		return "make the metadata of a new cluster in " + j.o.Dir + " of what " + j.bucket.Store.String() + " holds"
	case lost == nil:
		return "the metadata in " + j.o.Dir + " can be read; replace them by what the segments say, without subscriptions"
	}
	return "make the metadata in " + j.o.Dir + " anew from its segments, without subscriptions"
}

// carryOut makes the metadata.
func (j *rebuildJob) carryOut(ctx context.Context) (*offline.Rebuilt, error) {
	if err := j.app.confirm(j.yes, j.question()); err != nil {
		return nil, err
	}
	local, err := settled(ctx, j.o)
	if err != nil {
		return nil, err
	}
	j.o.Store = local.Store
	e := offline.Evidence{Local: &local, Bucket: j.bucket}
	rep, remains, seams, err := offline.Plan(j.o, e)
	if err != nil {
		return nil, err
	}
	if j.bucket != nil {
		// The history is taken before anything is made in it; then whoever else is at work there is seen.
		j.bucket.History = remains.Cluster.History
		if err := errors.Join(j.bucket.Claim(ctx, j.o, time.Now()), j.bucket.Unchanged(ctx)); err != nil {
			return nil, err
		}
		if len(seams) > 0 {
			if err := j.mend(ctx, seams); err != nil {
				return nil, err
			}
			cut := rep.Cut
			if rep, remains, _, err = offline.Plan(j.o, e); err != nil {
				return nil, err
			}
			rep.Cut = cut
		}
	}
	s, err := state.Rebuild(remains)
	if err != nil {
		return nil, err
	}
	if rep.Kept, err = meta.Rebuild(j.o.MetaDir(), j.o.Store, j.o.Address, s); err != nil {
		return nil, metaError(err, j.o)
	}
	if j.bucket != nil {
		return rep, j.bucket.Take(ctx, j.o, time.Now())
	}
	return rep, nil
}

// mend makes objects of what only objects have that overlap with others.
func (j *rebuildJob) mend(ctx context.Context, seams []salvage.Seam) error {
	next := j.bucket.History + 1
	return j.bucket.Mend(ctx, seams, gather.Recut{
		Store: j.bucket.Store, FS: disk.OS(), File: filepath.Join(j.o.Dir, "rebuild.tmp"), Self: j.o.Store, History: next,
		Incarnation: uint64(next) << 32, Unique: rand.Uint64, Now: time.Now().UnixMilli(),
	})
}

// holds refuses segments that lie elsewhere: metadata name the store that has them.
func holds(o offline.Broker, from string) error {
	abs, err := filepath.Abs(from)
	if err != nil {
		return fmt.Errorf("find %s: %w", from, err)
	}
	if abs != o.Dir && abs != filepath.Join(o.Dir, "wal") {
		return fail.WithHint(fail.Usagef("cluster rebuild: the segments in %s are not those of the data directory %s", from, o.Dir),
			"--from %s --data-dir %s rebuilds from what lies there", from, from)
	}
	return nil
}

// settled is what the segments say once what was in the journal is in them.
func settled(ctx context.Context, o offline.Broker) (e storage.Evidence, err error) {
	store, err := storage.Open(ctx, storage.Config{Dir: o.Dir})
	if err != nil {
		return e, node.Explain(fmt.Errorf("open the log: %w", err), broker.Config{DataDir: o.Dir})
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if e, err = storage.Survey(disk.OS(), o.Dir); err != nil || len(e.Partitions) == 0 {
		return e, err
	}
	return e, store.Settle(ctx, &e)
}
