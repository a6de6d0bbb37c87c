package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// rebuilt is cluster rebuild -o json.
type rebuilt struct {
	Directory  string             `json:"directory"`
	DryRun     bool               `json:"dry_run"`
	ClusterID  string             `json:"cluster_id"`
	History    int                `json:"history"`
	Kept       string             `json:"kept,omitempty"` // where the metadata that were there lie now
	Partitions []rebuiltPartition `json:"partitions"`
	Problems   []segmentProblem   `json:"problems"`
	Notes      []string           `json:"notes"`
}

// rebuiltPartition is a partition as the segments have it.
type rebuiltPartition struct {
	Topic     string           `json:"topic"`
	TopicID   string           `json:"topic_id"`
	Partition uint32           `json:"partition"`
	First     uint64           `json:"first"`
	End       uint64           `json:"end"`
	GoesOnAt  uint64           `json:"goes_on_at"`
	Files     int              `json:"files"`
	Bytes     int64            `json:"bytes"`
	Missing   []missingOffsets `json:"missing"` // in no file; consumers are told of them
}

// missingOffsets are [From, To).
type missingOffsets struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

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
		if err := o.holds(*from); err != nil {
			return err
		}
		rep, err := a.rebuild(cmd.Context(), o, *dry, *yes)
		if err != nil {
			return fmt.Errorf("rebuild the metadata: %w", err)
		}
		if output.value == "json" {
			return render.JSON(a.out, rep)
		}
		return printRebuilt(a.out, *rep)
	}
	return cmd
}

// holds refuses segments that lie elsewhere: metadata name the store that has them.
func (o offline) holds(from string) error {
	abs, err := filepath.Abs(from)
	if err != nil {
		return fmt.Errorf("find %s: %w", from, err)
	}
	if abs != o.dir && abs != filepath.Join(o.dir, "wal") {
		return fail.WithHint(fail.Usagef("cluster rebuild: the segments in %s are not those of the data directory %s", from, o.dir),
			"--from %s --data-dir %s rebuilds from what lies there", from, from)
	}
	return nil
}

func (a *app) rebuild(ctx context.Context, o offline, dry, yes bool) (*rebuilt, error) {
	if dry {
		e, err := storage.Survey(disk.OS(), o.dir)
		if err != nil {
			return nil, err
		}
		rep, _, err := rebuiltFrom(o, e)
		if err != nil {
			return nil, err
		}
		rep.DryRun = true
		has, err := storage.HasJournal(disk.OS(), o.dir)
		if has {
			rep.Notes = append(rep.Notes, "the journal may hold messages that are in no segment file yet; a rebuild writes them back first")
		}
		return rep, err
	}
	question := "make the metadata in " + o.dir + " anew from its segments, without subscriptions"
	if meta.Inspect(o.metaDir(), true) == nil {
		question = "the metadata in " + o.dir + " can be read; replace them by what the segments say, without subscriptions"
	}
	if err := a.confirm(yes, question); err != nil {
		return nil, err
	}
	e, err := settled(ctx, o)
	if err != nil {
		return nil, err
	}
	rep, remains, err := rebuiltFrom(o, e)
	if err != nil {
		return nil, err
	}
	s, err := state.Rebuild(remains)
	if err != nil {
		return nil, err
	}
	rep.Kept, err = meta.Rebuild(o.metaDir(), o.store, o.address, s)
	if err != nil {
		return nil, metaError(err, o)
	}
	return rep, nil
}

// settled is what the segments say once what was in the journal is in them.
func settled(ctx context.Context, o offline) (e storage.Evidence, err error) {
	store, err := storage.Open(ctx, storage.Config{Dir: o.dir})
	if err != nil {
		return e, startError(fmt.Errorf("open the log: %w", err), broker.Config{DataDir: o.dir})
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if e, err = storage.Survey(disk.OS(), o.dir); err != nil {
		return e, err
	}
	return e, store.Settle(ctx, &e)
}

// rebuiltFrom turns evidence into what the metadata are made of, and what is said of it.
func rebuiltFrom(o offline, e storage.Evidence) (*rebuilt, state.Remains, error) {
	rep := &rebuilt{Directory: o.dir, ClusterID: hex.EncodeToString(e.Cluster[:]), History: int(e.History) + 1}
	remains := state.Remains{
		Cluster: state.Cluster{ID: e.Cluster, Name: o.cluster, History: e.History},
		Run:     state.RegisterStore{Store: o.store, Broker: o.name},
	}
	if _, err := rand.Read(remains.Run.Nonce[:]); err != nil {
		return nil, remains, fmt.Errorf("draw a nonce: %w", err)
	}
	if len(e.Partitions) == 0 {
		return nil, remains, fail.WithHint(fmt.Errorf("%s holds no segments that can be read", o.dir), "the data directory of the broker is meant; an empty one needs no metadata: just start it")
	}
	topics := map[state.TopicID]*state.RemainsTopic{}
	var order []state.TopicID
	for i := range e.Partitions {
		p := &e.Partitions[i]
		t := topics[p.ID.Topic]
		if t == nil {
			t = &state.RemainsTopic{ID: p.ID.Topic}
			topics[t.ID], order = t, append(order, t.ID)
		}
		if t.Name == "" || p.Created > t.Created {
			t.Name, t.Created = p.Topic, p.Created
		}
		t.Partitions = append(t.Partitions, state.RemainsPartition{Number: p.ID.Partition, Pieces: remainsPieces(p.Pieces)})
	}
	for _, id := range order {
		remains.Topics = append(remains.Topics, *topics[id])
	}
	renamed := state.UniqueNames(remains.Topics)
	names := map[state.TopicID]string{}
	for _, t := range remains.Topics {
		names[t.ID] = t.Name
		if was := renamed[t.ID]; was != "" {
			rep.Notes = append(rep.Notes, fmt.Sprintf("%s was %s: a newer topic has that name; it may have been deleted before", t.Name, was))
		}
	}
	for i := range e.Partitions {
		rep.Partitions = append(rep.Partitions, partitionReport(&e.Partitions[i], names[e.Partitions[i].ID.Topic]))
	}
	for _, p := range e.Problems {
		rep.Problems = append(rep.Problems, segmentProblem{File: p.File, What: p.Err.Error()})
	}
	rep.Notes = append(rep.Notes, notInSegments()...)
	return rep, remains, nil
}

func remainsPieces(pieces []storage.Piece) []state.RemainsPiece {
	var list []state.RemainsPiece
	for _, p := range pieces {
		list = append(list, state.RemainsPiece(p))
	}
	return list
}

// partitionReport is what is said of a partition.
func partitionReport(p *storage.FoundPartition, topic string) rebuiltPartition {
	r := rebuiltPartition{
		Topic: topic, TopicID: hex.EncodeToString(p.ID.Topic[:]), Partition: p.ID.Partition,
		End: p.End(), GoesOnAt: p.End() + state.HistoryGap, Files: p.Files, Bytes: p.Bytes,
	}
	for i, piece := range p.Pieces {
		if i == 0 {
			r.First = piece.Start
		} else if before := p.Pieces[i-1].End; before < piece.Start && piece.Start != before+state.HistoryGap {
			r.Missing = append(r.Missing, missingOffsets{before, piece.Start})
		}
	}
	return r
}

// notInSegments is what a rebuild cannot know, and what holds instead.
func notInSegments() []string {
	return []string{
		"subscriptions and what they acknowledged: there are none; `danube subscription create` makes them",
		"retention: nothing is deleted until `danube topic set` says so again",
		"durability: local; limits of topics and namespaces: none",
		"partitions behind the last that holds something, topics that never held a message, and topics that are not reliable",
		"what lies on other brokers only",
	}
}

func printRebuilt(w io.Writer, r rebuilt) error {
	verb := "made anew"
	if r.DryRun {
		verb = "would be made anew"
	}
	fmt.Fprintf(w, "the metadata of cluster %s %s from %s, in history %d\n", r.ClusterID, verb, r.Directory, r.History)
	if r.Kept != "" {
		fmt.Fprintf(w, "what was there is kept in %s\n", r.Kept)
	}
	fmt.Fprintln(w)
	t := render.Table{Header: []string{"topic", "partition", "offsets", "goes on at", "files", "size", "missing"}}
	for _, p := range r.Partitions {
		missing := ""
		for _, m := range p.Missing {
			missing += render.Offsets(m.From, m.To) + " "
		}
		t.Add(p.Topic, strconv.FormatUint(uint64(p.Partition), 10), render.Offsets(p.First, p.End), render.U64(p.GoesOnAt), strconv.Itoa(p.Files), render.Size(p.Bytes), missing)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(w)
		if err := printProblems(w, r.Problems); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\nsegments do not hold:")
	for _, n := range r.Notes {
		if _, err := fmt.Fprintf(w, "  %s\n", n); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
