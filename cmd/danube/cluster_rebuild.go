package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/node"
	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

func (a *app) clusterRebuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild --from DIR --data-dir D",
		Short: "Make lost metadata anew from a stopped broker's own segments",
		Long: "For a broker whose Raft database is gone or damaged and that no other broker can give it again. Topics, partitions\n" +
			"and offsets are read from the headers and footers of the segment files; every message that can be read is\n" +
			"read again at its offset. A new history begins: every partition goes on far above. What segments do not hold\n" +
			"(subscriptions, retention, topics without a message) is named. The metadata that were there are kept aside.",
		Args: wantArgs(),
	}
	file := addOfflineFlags(cmd)
	from := cmd.Flags().String("from", "", "`DIR` whose segments are read: the data directory")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would come of it; nothing is changed")
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *from == "" {
			return fail.Usagef("cluster rebuild: --from is missing")
		}
		o, err := a.offline(cmd, *file)
		if err != nil {
			return err
		}
		if err := holds(o, *from); err != nil {
			return err
		}
		rep, err := a.rebuild(cmd.Context(), o, *dry, *yes)
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

func (a *app) rebuild(ctx context.Context, o offline.Broker, dry, yes bool) (*offline.Rebuilt, error) {
	if dry {
		e, err := storage.Survey(disk.OS(), o.Dir)
		if err != nil {
			return nil, err
		}
		rep, _, err := offline.Plan(o, e)
		if err != nil {
			return nil, err
		}
		rep.DryRun = true
		has, err := storage.HasJournal(disk.OS(), o.Dir)
		if has {
			rep.Notes = append(rep.Notes, "the journal may hold messages that are in no segment file yet; a rebuild writes them back first")
		}
		return rep, err
	}
	question := "make the metadata in " + o.Dir + " anew from its segments, without subscriptions"
	if meta.Inspect(o.MetaDir(), true) == nil {
		question = "the metadata in " + o.Dir + " can be read; replace them by what the segments say, without subscriptions"
	}
	if err := a.confirm(yes, question); err != nil {
		return nil, err
	}
	e, err := settled(ctx, o)
	if err != nil {
		return nil, err
	}
	rep, remains, err := offline.Plan(o, e)
	if err != nil {
		return nil, err
	}
	s, err := state.Rebuild(remains)
	if err != nil {
		return nil, err
	}
	rep.Kept, err = meta.Rebuild(o.MetaDir(), o.Store, o.Address, s)
	if err != nil {
		return nil, metaError(err, o)
	}
	return rep, nil
}

// settled is what the segments say once what was in the journal is in them.
func settled(ctx context.Context, o offline.Broker) (e storage.Evidence, err error) {
	store, err := storage.Open(ctx, storage.Config{Dir: o.Dir})
	if err != nil {
		return e, node.Explain(fmt.Errorf("open the log: %w", err), broker.Config{DataDir: o.Dir})
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if e, err = storage.Survey(disk.OS(), o.Dir); err != nil {
		return e, err
	}
	return e, store.Settle(ctx, &e)
}
