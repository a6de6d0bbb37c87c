package offline

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta/salvage"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// Rebuilt is what metadata made from segments come to: cluster rebuild -o json.
type Rebuilt struct {
	Directory     string             `json:"directory"`
	From          string             `json:"from,omitempty"` // the cold tier
	DryRun        bool               `json:"dry_run"`
	ClusterID     string             `json:"cluster_id"`
	History       int                `json:"history"`
	Kept          string             `json:"kept,omitempty"`     // where the metadata that were there lie now
	Manifest      string             `json:"manifest,omitempty"` // the object that told what segments do not
	Subscriptions int                `json:"subscriptions,omitempty"`
	Partitions    []RebuiltPartition `json:"partitions"`
	Cut           []LeftOut          `json:"cut,omitempty"`      // offsets that get an object of their own, for only one of two that overlap can be named
	LeftOut       []LeftOut          `json:"left_out,omitempty"` // objects that no catalog names
	Problems      []Problem          `json:"problems"`
	Notes         []string           `json:"notes"`
}

// RebuiltPartition is a partition as the segments have it.
type RebuiltPartition struct {
	Topic     string    `json:"topic"`
	TopicID   string    `json:"topic_id"`
	Partition uint32    `json:"partition"`
	First     uint64    `json:"first"`
	End       uint64    `json:"end"`
	GoesOnAt  uint64    `json:"goes_on_at"`
	Files     int       `json:"files"`
	Objects   int       `json:"objects,omitempty"` // in the cold tier, pieces of cuts counted one by one
	Bytes     int64     `json:"bytes"`
	Missing   []Missing `json:"missing"` // in no file; consumers are told of them
}

// Missing are [From, To).
type Missing struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// LeftOut is an object, or a piece of one, and why it is not used.
type LeftOut struct {
	Object    string `json:"object"`
	TopicID   string `json:"topic_id"`
	Partition uint32 `json:"partition"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
	Why       string `json:"why"`
}

// Broker is a stopped broker whose data directory a command works on.
type Broker struct {
	Dir     string // absolute
	Name    string
	Cluster string // name
	Address string // of the peer port from now on, host:port
	Store   state.StoreID
}

// MetaDir is where its metadata lie.
func (o Broker) MetaDir() string { return filepath.Join(o.Dir, "meta") }

// Evidence is what a rebuild goes by: what the segment files of the broker say, what a cold tier holds, or both.
type Evidence struct {
	Local  *storage.Evidence
	Bucket *Bucket
}

// cluster is whose evidence it is.
func (e Evidence) cluster() (id [16]byte, err error) {
	if e.Bucket != nil {
		id = e.Bucket.Cluster
	}
	if e.Local != nil && e.Local.Cluster != [16]byte{} {
		if id != [16]byte{} && id != e.Local.Cluster {
			return id, fail.WithHint(fmt.Errorf("the data directory holds segments of cluster %x, the objects are those of %x", e.Local.Cluster, id), "an empty data directory is right for a cluster of which only the bucket is left")
		}
		id = e.Local.Cluster
	}
	return id, nil
}

// Plan turns evidence into what the metadata are made of, and what is said of it.
func Plan(o Broker, e Evidence) (*Rebuilt, state.Remains, []salvage.Seam, error) {
	id, err := e.cluster()
	rep := &Rebuilt{Directory: o.Dir, ClusterID: hex.EncodeToString(id[:])}
	remains := state.Remains{Cluster: state.Cluster{ID: id, Name: o.Cluster}, Run: state.RegisterStore{Store: o.Store, Broker: o.Name}}
	if err != nil {
		return nil, remains, nil, err
	}
	if _, err := rand.Read(remains.Run.Nonce[:]); err != nil {
		return nil, remains, nil, fmt.Errorf("draw a nonce: %w", err)
	}
	var in salvage.Evidence
	if l := e.Local; l != nil {
		in.Local = localOf(l)
		remains.Cluster.History = l.History
		for _, p := range l.Problems {
			rep.Problems = append(rep.Problems, Problem{File: p.File, What: p.Err.Error()})
		}
	}
	if b := e.Bucket; b != nil {
		var others []Problem
		in.Pieces, others = b.pieces()
		in.Manifest = b.Manifest
		remains.Cluster.History = max(remains.Cluster.History, b.History)
		rep.From, rep.Problems = b.Store.String(), slices.Concat(rep.Problems, b.Problems, others)
		if b.Name != "" {
			remains.Cluster.Name = b.Name
		}
		if b.Manifest != nil {
			rep.Manifest = b.key.String()
		}
	}
	if len(in.Pieces)+len(in.Local) == 0 && in.Manifest == nil {
		return nil, remains, nil, nothing(o, e)
	}
	out := salvage.Plan(in)
	remains.Cluster.History = max(remains.Cluster.History, out.History)
	remains.Namespaces, remains.Topics, remains.Subscriptions = out.Namespaces, out.Topics, out.Subscriptions
	rep.History, rep.Subscriptions = int(remains.Cluster.History)+1, len(out.Subscriptions)
	rep.describe(e, &out)
	return rep, remains, out.Seams, nil
}

// nothing refuses to make metadata of no evidence.
func nothing(o Broker, e Evidence) error {
	if e.Bucket != nil {
		return fail.WithHint(fmt.Errorf("%s holds no segments that can be read", e.Bucket.Store), "the value of storage.durable.url is meant, with its prefix")
	}
	return fail.WithHint(fmt.Errorf("%s holds no segments that can be read", o.Dir), "the data directory of the broker is meant; an empty one needs no metadata: just start it")
}

func localOf(e *storage.Evidence) (list []salvage.Local) {
	for i := range e.Partitions {
		p := &e.Partitions[i]
		for _, x := range p.Pieces {
			list = append(list, salvage.Local{
				Place: salvage.Place{Topic: p.ID.Topic, Partition: p.ID.Partition, Name: p.Topic, Created: p.Created},
				Epoch: x.Epoch, Start: x.Start, End: x.End,
			})
		}
	}
	return list
}

// describe fills in what is said of the plan.
func (r *Rebuilt) describe(e Evidence, out *salvage.Result) {
	for i := range out.Topics {
		t := &out.Topics[i]
		if was := out.Renamed[t.ID]; was != "" {
			r.Notes = append(r.Notes, fmt.Sprintf("%s was %s: a newer topic has that name; it may have been deleted before", t.Name, was))
		}
		for j := range t.Partitions {
			r.Partitions = append(r.Partitions, partitionReport(t, &t.Partitions[j], e.Local))
		}
	}
	for _, l := range out.Left {
		r.LeftOut = append(r.LeftOut, leftOut(l.Piece, l.Piece.Segment.Start, l.Piece.Segment.End, l.Why.String()))
	}
	for _, x := range out.Seams {
		r.Cut = append(r.Cut, leftOut(x.Piece, x.Start, x.End, "overlaps with another object"))
	}
	if e.Bucket != nil {
		r.Notes = append(r.Notes, e.Bucket.notes(out)...)
	} else {
		r.Notes = append(r.Notes, notInSegments()...)
	}
}

func leftOut(p *salvage.Piece, from, to uint64, why string) LeftOut {
	return LeftOut{Object: p.Key, TopicID: hex.EncodeToString(p.Topic[:]), Partition: p.Partition, From: from, To: to, Why: why}
}

// partitionReport is what is said of a partition.
func partitionReport(t *state.RemainsTopic, p *state.RemainsPartition, local *storage.Evidence) RebuiltPartition {
	r := RebuiltPartition{Topic: t.Name, TopicID: hex.EncodeToString(t.ID[:]), Partition: p.Number, First: p.LogStart, End: p.LogStart, Objects: len(p.Segments)}
	for _, s := range p.Segments {
		r.Bytes += s.Bytes
	}
	if local != nil {
		for i := range local.Partitions {
			if l := &local.Partitions[i]; l.ID.Topic == t.ID && l.ID.Partition == p.Number {
				r.Files, r.Bytes = l.Files, r.Bytes+l.Bytes
			}
		}
	}
	for _, x := range p.Pieces {
		switch n := len(r.Missing); {
		case !x.Lost:
			r.End = max(r.End, x.End)
		case n > 0 && r.Missing[n-1].To == x.Start:
			r.Missing[n-1].To = x.End
		default:
			r.Missing = append(r.Missing, Missing{x.Start, x.End})
		}
	}
	goesOn := max(p.Seen, p.LogStart)
	if n := len(p.Pieces); n > 0 {
		goesOn = max(goesOn, p.Pieces[n-1].End)
	}
	r.GoesOnAt = goesOn + state.HistoryGap
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

// Print prints the report for a person.
func (r Rebuilt) Print(w io.Writer) error {
	verb := "made anew"
	if r.DryRun {
		verb = "would be made anew"
	}
	from := r.Directory
	if r.From != "" {
		from = r.From
	}
	fmt.Fprintf(w, "the metadata of cluster %s %s from %s, in history %d\n", r.ClusterID, verb, from, r.History)
	if r.Kept != "" {
		fmt.Fprintf(w, "what was there is kept in %s\n", r.Kept)
	}
	fmt.Fprintln(w)
	files := "files"
	if r.From != "" {
		files = "objects"
	}
	t := render.Table{Header: []string{"topic", "partition", "offsets", "goes on at", files, "size", "missing"}}
	for _, p := range r.Partitions {
		missing := ""
		for _, m := range p.Missing {
			missing += render.Offsets(m.From, m.To) + " "
		}
		t.Add(p.Topic, strconv.FormatUint(uint64(p.Partition), 10), render.Offsets(p.First, p.End), render.U64(p.GoesOnAt), strconv.Itoa(p.Files+p.Objects), render.Size(p.Bytes), missing)
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
	if err := r.printLeftOut(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nsegments do not hold:")
	for _, n := range r.Notes {
		if _, err := fmt.Fprintf(w, "  %s\n", n); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// someLeftOut is how many objects of those that are left out a person is shown.
const someLeftOut = 20

// printLeftOut names objects that are not used: those that are held by others or were given up only by their number.
func (r Rebuilt) printLeftOut(w io.Writer) error {
	if len(r.LeftOut)+len(r.Cut) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := render.Table{Header: []string{"left out", "offsets", "why"}}
	count := map[string]int{}
	for _, l := range slices.Concat(r.Cut, r.LeftOut) {
		expected := l.Why == salvage.Covered.String() || l.Why == salvage.Trimmed.String() || l.Why == salvage.Deleted.String()
		if count[l.Why]++; !expected && count[l.Why] <= someLeftOut {
			t.Add(l.Object, render.Offsets(l.From, l.To), l.Why)
		}
	}
	if !t.Empty() {
		if err := t.Print(w); err != nil {
			return err
		}
	}
	for _, why := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(w, "%s: %s\n", render.Plural(count[why], "object"), why)
	}
	return nil
}
