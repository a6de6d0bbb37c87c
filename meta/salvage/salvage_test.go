package salvage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
)

func topicID() state.TopicID { return state.TopicID{7} }

// piece is an object of partition 0 under one epoch.
func piece(start, end, epoch uint64) Piece {
	return Piece{
		Place: Place{Topic: topicID(), Name: "/default/t", Created: 1000}, Key: fmt.Sprintf("%d-%d@%d", start, end, epoch), Epochs: []state.EpochStart{{Epoch: epoch, Start: start}},
		Segment: catalog.Segment{Start: start, End: end, Bytes: 1, Object: catalog.Object{Kind: catalog.Own, Epoch: epoch, Incarnation: 1, Unique: start}},
	}
}

func local(start, end, epoch uint64) Local {
	return Local{Place: Place{Topic: topicID(), Name: "/default/t", Created: 900}, Epoch: epoch, Start: start, End: end}
}

// told is a manifest of the topic with one partition.
func told(level state.Level, p manifest.Partition) *manifest.Manifest {
	return &manifest.Manifest{Time: 2000, Topics: []manifest.Topic{{
		Topic:      state.Topic{ID: topicID(), Name: "/default/t", CreatedAt: 5, Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: level, RetentionBytes: 77}},
		Partitions: []manifest.Partition{p},
	}}}
}

func sealed(start, end, epoch uint64, status state.RangeStatus) manifest.Range {
	return manifest.Range{Epochs: []state.EpochStart{{Epoch: epoch, Start: start}}, Start: start, End: end, Status: status, Lowest: state.LevelLocal}
}

func open(start, epoch uint64, lowest state.Level) manifest.Range {
	return manifest.Range{Epochs: []state.EpochStart{{Epoch: epoch, Start: start}}, Start: start, Lowest: lowest}
}

// shown is a partition of a result for a table: what there is, who has it, what the catalog names.
func shown(out Result) string {
	var b strings.Builder
	for _, t := range out.Topics {
		for _, p := range t.Partitions {
			for _, x := range p.Pieces {
				kind := ""
				if x.Lost {
					kind = " lost"
				} else if x.Stored {
					kind = " here"
				}
				fmt.Fprintf(&b, "%d-%d@%d%s, ", x.Start, x.End, x.Epoch, kind)
			}
			b.WriteString("|")
			for _, s := range p.Segments {
				fmt.Fprintf(&b, " %d-%d", s.Start, s.End)
			}
		}
	}
	var left []string
	for _, l := range out.Left {
		left = append(left, fmt.Sprintf(" %s %s", l.Piece.Key, l.Why))
	}
	slices.Sort(left)
	return strings.TrimSuffix(b.String(), " ") + " |" + strings.Join(left, ",")
}

func TestPlan(t *testing.T) {
	const gap = state.HistoryGap
	two := manifest.Partition{Epoch: 3, Ceiling: 500, Floor: 120, LogStart: 10, Ranges: []manifest.Range{
		sealed(10, 50, 1, state.RangeSealed), sealed(60, 80, 1, state.RangeOrphaned), open(100, 3, state.LevelLocal),
	}}
	object := two
	object.Ranges = []manifest.Range{sealed(10, 50, 1, state.RangeSealed), open(100, 3, state.LevelObject)}
	for name, c := range map[string]struct {
		e    Evidence
		want string
	}{
		"nothing": {Evidence{}, " |"},
		"a chain": {Evidence{Pieces: []Piece{piece(30, 40, 1), piece(0, 30, 1)}}, "0-40@1, | 0-30 30-40 |"},
		"a hole is lost": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(20, 30, 1)}}, "0-10@1, 10-20@1 lost, 20-30@1, | 0-10 20-30 |",
		},
		"between epochs it is too": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(20, 30, 2)}}, "0-10@1, 10-20@1 lost, 20-30@2, | 0-10 20-30 |",
		},
		"but not the gap of an earlier rebuild": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(10+gap, 20+gap, 1<<48|1)}},
			fmt.Sprintf("0-10@1, %d-%d@%d, | 0-10 %d-%d |", 10+gap, 20+gap, 1<<48|1, 10+gap, 20+gap),
		},
		"merged and inputs": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(10, 20, 1), piece(0, 20, 1), piece(20, 25, 1)}},
			"0-25@1, | 0-20 20-25 | 0-10@1 held by others, 10-20@1 held by others",
		},
		"an older epoch loses from the first offset of the newer": {
			Evidence{Pieces: []Piece{piece(0, 30, 1), piece(30, 60, 1), piece(50, 70, 2), piece(40, 45, 1)}},
			"0-30@1, 30-40@1 lost, 40-45@1, 45-50@1 lost, 50-70@2, | 0-30 40-45 50-70 | 30-60@1 of an older epoch",
		},
		"a manifest knows what there was": {
			Evidence{Manifest: told(state.LevelLocal, two), Pieces: []Piece{piece(0, 5, 1), piece(5, 40, 1), piece(50, 55, 1), piece(70, 80, 1), piece(60, 70, 2), piece(100, 130, 3)}},
			"10-40@1, 40-50@1 lost, 60-70@1 lost, 70-80@1, 100-130@3, 130-500@3 lost, | 5-40 70-80 100-130 | 0-5@1 below the start of the log, 50-55@1 never committed, 60-70@2 never committed",
		},
		"at level object what is not stored was not acknowledged": {
			Evidence{Manifest: told(state.LevelObject, object), Pieces: []Piece{piece(10, 50, 1), piece(100, 130, 3)}}, "10-50@1, 100-130@3, | 10-50 100-130 |",
		},
		"younger epochs than the manifest": {
			Evidence{Manifest: told(state.LevelLocal, two), Pieces: []Piece{piece(10, 50, 1), piece(60, 80, 1), piece(100, 130, 3), piece(140, 150, 4)}},
			"10-50@1, 60-80@1, 100-130@3, 130-140@3 lost, 140-150@4, | 10-50 60-80 100-130 140-150 |",
		},
		"the disk has more": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(10, 20, 1)}, Local: []Local{local(5, 40, 1), local(40, 40, 2)}},
			"0-5@1, 5-40@1 here, | 0-10 10-20 |",
		},
		"the disk alone": {
			Evidence{Local: []Local{local(0, 10, 1), local(10, 30, 2), local(40, 50, 2)}}, "0-10@1 here, 10-30@2 here, 30-40@2 lost, 40-50@2 here, | |",
		},
		"the disk has an older epoch": {
			Evidence{Pieces: []Piece{piece(10, 20, 2)}, Local: []Local{local(0, 15, 1)}}, "0-10@1 here, 10-20@2, | 10-20 |",
		},
		"an empty epoch on the disk ends the one before": {
			Evidence{Pieces: []Piece{piece(0, 10, 1), piece(10, 20, 1)}, Local: []Local{local(10, 10, 2)}}, "0-10@1, | 0-10 | 10-20@1 of an older epoch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(Plan(c.e)); got != c.want {
				t.Errorf("comes to\n %s, want\n %s", got, c.want)
			}
		})
	}
}

// Two that overlap: one is taken, of the other what only it has is a seam.
func TestWhatOverlapsIsASeam(t *testing.T) {
	out := Plan(Evidence{Pieces: []Piece{piece(0, 20, 1), piece(10, 50, 1), piece(40, 60, 1)}})
	if got := shown(out); got != "0-20@1, 20-40@1 lost, 40-60@1, | 0-20 40-60 | 10-50@1 held by others" {
		t.Errorf("comes to %s", got)
	}
	if len(out.Seams) != 1 || out.Seams[0].Start != 20 || out.Seams[0].End != 40 || out.Seams[0].Piece.Key != "10-50@1" {
		t.Errorf("seams %+v", out.Seams)
	}
}

// What no cluster has is left out, and stops nothing.
func TestNonsenseIsLeftOut(t *testing.T) {
	change := func(do func(*Piece)) Piece {
		p := piece(0, 10, 1)
		do(&p)
		return p
	}
	for name, p := range map[string]Piece{
		"too far":         change(func(p *Piece) { p.Segment.End = 1 << 62 }),
		"no partition":    change(func(p *Piece) { p.Partition = state.MaxPartitions }),
		"no epoch":        change(func(p *Piece) { p.Epochs = nil }),
		"epoch zero":      change(func(p *Piece) { p.Epochs[0].Epoch = 0 }),
		"a late epoch":    change(func(p *Piece) { p.Epochs[0].Start = 1 }),
		"epoch behind it": change(func(p *Piece) { p.Epochs = append(p.Epochs, state.EpochStart{Epoch: 2, Start: 10}) }),
		"epochs fall":     change(func(p *Piece) { p.Epochs = []state.EpochStart{{Epoch: 2}, {Epoch: 1, Start: 5}} }),
		"no bytes":        change(func(p *Piece) { p.Segment.Bytes = 0 }),
	} {
		p.Key = "bad"
		out := Plan(Evidence{Pieces: []Piece{p, piece(0, 5, 1)}})
		if got := shown(out); got != "0-5@1, | 0-5 | bad nonsense" {
			t.Errorf("%s: %s", name, got)
		}
	}
	out := Plan(Evidence{Manifest: told(state.LevelLocal, manifest.Partition{}), Pieces: []Piece{change(func(p *Piece) { p.Partition = 1 })}})
	if len(out.Left) != 1 || out.Left[0].Why != Nonsense {
		t.Errorf("a partition too many: %+v", out.Left)
	}
}

// Topics come from the manifest as they are set there; those it does not have are younger, or were deleted before it.
func TestTopics(t *testing.T) {
	m := told(state.LevelLocal, manifest.Partition{Epoch: 1, Ceiling: 1000, Ranges: []manifest.Range{open(0, 1, state.LevelLocal)}})
	m.Time = 50 * 60 * 1000
	m.Namespaces = []state.Namespace{{Name: "default"}}
	m.Subscriptions = []state.Subscription{{ID: 3, Topic: topicID(), Name: "s"}}
	m.Cluster.History = 4
	m.Topics = append(m.Topics, manifest.Topic{Topic: state.Topic{ID: state.TopicID{8}, Name: "/default/gone", DeletedAt: 9}})
	of := func(id byte, name string, created int64, partition uint32) Piece {
		p := piece(0, 10, 1)
		p.Topic, p.Name, p.Created, p.Partition, p.Key = state.TopicID{id}, name, created, partition, name
		return p
	}
	out := Plan(Evidence{Manifest: m, Pieces: []Piece{
		of(8, "/default/gone", m.Time+1, 0), of(9, "/default/forgotten", m.Time-unheard-1, 0), of(10, "/default/new", m.Time-unheard, 2), of(11, "/default/t", m.Time, 0),
	}})
	var names []string
	for _, topic := range out.Topics {
		names = append(names, topic.Name)
	}
	if want := []string{"/default/new", "/default/t", "/default/t-07000000"}; !slices.Equal(names, want) {
		t.Fatalf("topics %q, want %q", names, want)
	}
	if out.Renamed[topicID()] != "/default/t" || !slices.Equal(out.Unlisted, []state.TopicID{{10}, {11}}) {
		t.Errorf("renamed %v, unlisted %v", out.Renamed, out.Unlisted)
	}
	if s := out.Topics[0].Settings; s != (state.TopicSettings{Partitions: 3, Reliable: true, Durability: state.LevelLocal}) || len(out.Topics[0].Partitions) != 1 {
		t.Errorf("a younger topic: %+v", out.Topics[0])
	}
	if out.Topics[2].Settings != m.Topics[0].Settings || out.Topics[2].Created != 5 || out.Topics[2].Partitions[0].Epoch != 1 || out.Topics[2].Partitions[0].Seen != 1000 {
		t.Errorf("a topic of the manifest: %+v", out.Topics[2])
	}
	if len(out.Left) != 2 || out.Left[0].Why != Deleted || out.Left[1].Why != Deleted || out.Left[0].Piece.Name != "/default/forgotten" {
		t.Errorf("left out %+v", out.Left)
	}
	if !reflect.DeepEqual(out.Subscriptions, m.Subscriptions) || !reflect.DeepEqual(out.Namespaces, m.Namespaces) || out.History != 4 {
		t.Errorf("subscriptions %+v, namespaces %+v, history %d", out.Subscriptions, out.Namespaces, out.History)
	}
	if out := Plan(Evidence{Pieces: []Piece{piece(0, 10, 7<<48|1)}}); out.History != 7 {
		t.Errorf("history %d by an epoch", out.History)
	}
	if got := Covered.String() + Why(99).String(); got != "held by othersreason 99" {
		t.Error(got)
	}
}
