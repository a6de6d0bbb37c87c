package offline

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// Rebuilt is what metadata made from segments come to: cluster rebuild -o json.
type Rebuilt struct {
	Directory  string             `json:"directory"`
	DryRun     bool               `json:"dry_run"`
	ClusterID  string             `json:"cluster_id"`
	History    int                `json:"history"`
	Kept       string             `json:"kept,omitempty"` // where the metadata that were there lie now
	Partitions []RebuiltPartition `json:"partitions"`
	Problems   []Problem          `json:"problems"`
	Notes      []string           `json:"notes"`
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
	Bytes     int64     `json:"bytes"`
	Missing   []Missing `json:"missing"` // in no file; consumers are told of them
}

// Missing are [From, To).
type Missing struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
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

// Plan turns what the segments of a broker say into what its metadata are made of, and what is said of it.
func Plan(o Broker, e storage.Evidence) (*Rebuilt, state.Remains, error) {
	rep := &Rebuilt{Directory: o.Dir, ClusterID: hex.EncodeToString(e.Cluster[:]), History: int(e.History) + 1}
	remains := state.Remains{
		Cluster: state.Cluster{ID: e.Cluster, Name: o.Cluster, History: e.History},
		Run:     state.RegisterStore{Store: o.Store, Broker: o.Name},
	}
	if _, err := rand.Read(remains.Run.Nonce[:]); err != nil {
		return nil, remains, fmt.Errorf("draw a nonce: %w", err)
	}
	if len(e.Partitions) == 0 {
		return nil, remains, fail.WithHint(fmt.Errorf("%s holds no segments that can be read", o.Dir), "the data directory of the broker is meant; an empty one needs no metadata: just start it")
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
		rep.Problems = append(rep.Problems, Problem{File: p.File, What: p.Err.Error()})
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
func partitionReport(p *storage.FoundPartition, topic string) RebuiltPartition {
	r := RebuiltPartition{
		Topic: topic, TopicID: hex.EncodeToString(p.ID.Topic[:]), Partition: p.ID.Partition,
		End: p.End(), GoesOnAt: p.End() + state.HistoryGap, Files: p.Files, Bytes: p.Bytes,
	}
	for i, piece := range p.Pieces {
		if i == 0 {
			r.First = piece.Start
		} else if before := p.Pieces[i-1].End; before < piece.Start && piece.Start != before+state.HistoryGap {
			r.Missing = append(r.Missing, Missing{before, piece.Start})
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

// Print prints the report for a person.
func (r Rebuilt) Print(w io.Writer) error {
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
