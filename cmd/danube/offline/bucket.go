package offline

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/salvage"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/gather"
	"github.com/danubemq/danube/storage/cold/keys"
)

// Bucket is what lies in a cold tier, for a rebuild.
type Bucket struct {
	Store    *cold.Store
	Cluster  [16]byte           // whose it is
	Name     string             // of the cluster, where anything tells it
	History  uint16             // the newest of it
	Manifest *manifest.Manifest // the newest that can be read; nil: none
	Found    *gather.Found
	Problems []Problem

	beat    []byte // the cluster's object as it was read
	written time.Time
	key     keys.Manifest // of the manifest
}

// bounds of what is read whole
const (
	mostBeat     = 64 << 10
	mostManifest = 1 << 30
)

// ReadBucket reads all that a rebuild needs, and refuses a store whose cluster was heard of lately. It calls progress with
// the number of segments and cuts that were read.
func ReadBucket(ctx context.Context, store *cold.Store, now time.Time, progress func(objects int)) (*Bucket, error) {
	b := &Bucket{Store: store}
	if err := b.readBeat(ctx, now); err != nil {
		return nil, err
	}
	var err error
	if b.Found, err = gather.Bucket(ctx, store, progress); err != nil {
		return nil, err
	}
	if err := b.readManifest(ctx); err != nil {
		return nil, err
	}
	if b.Cluster == [16]byte{} {
		b.Cluster = mostFrequent(b.Found.Segments)
	}
	for _, n := range b.Found.Histories {
		b.History = max(b.History, n)
	}
	for _, p := range b.Found.Problems {
		b.Problems = append(b.Problems, Problem{File: p.Key, At: p.At, What: p.Err.Error()})
	}
	return b, nil
}

// readBeat reads the cluster's object.
func (b *Bucket) readBeat(ctx context.Context, now time.Time) error {
	data, err := gather.Read(ctx, b.Store, keys.Cluster, mostBeat)
	if errors.Is(err, cold.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b.beat = data
	beat, err := manifest.DecodeBeat(data)
	if errors.Is(err, manifest.ErrDamaged) {
		b.Problems = append(b.Problems, Problem{File: keys.Cluster, What: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	if age := now.Sub(beat.Time); age < manifest.Fresh {
		return fail.WithHint(fmt.Errorf("%s belongs to cluster %x (%q), which was heard of %s", b.Store, beat.Cluster, beat.Name, sinceText(age)),
			"a cluster that lives keeps its bucket; if it is gone for good, wait until %.0f minutes have passed since (the clocks of its leader and of this machine count)", manifest.Fresh.Minutes())
	}
	b.Cluster, b.Name, b.History, b.written = beat.Cluster, beat.Name, beat.History, beat.Time
	return nil
}

func sinceText(age time.Duration) string {
	if age < 0 {
		return fmt.Sprintf("%s from now: one of two clocks is wrong", -age.Round(time.Second))
	}
	return fmt.Sprintf("%s ago", age.Round(time.Second))
}

// Unchanged refuses to go on when the cluster's object has changed since it was read.
func (b *Bucket) Unchanged(ctx context.Context) error {
	data, err := gather.Read(ctx, b.Store, keys.Cluster, mostBeat)
	if err != nil && !errors.Is(err, cold.NotFound) {
		return err
	}
	if !bytes.Equal(data, b.beat) {
		return fmt.Errorf("%s belongs to a cluster that lives: it has written there meanwhile", b.Store)
	}
	return nil
}

// readManifest takes the newest manifest that can be read and is of the cluster.
func (b *Bucket) readManifest(ctx context.Context) error {
	for _, key := range b.Found.Manifests {
		data, err := gather.Read(ctx, b.Store, key.String(), mostManifest)
		if err != nil {
			return err
		}
		m, err := manifest.Decode(data)
		switch {
		case errors.Is(err, manifest.ErrDamaged):
			b.Problems = append(b.Problems, Problem{File: key.String(), What: err.Error()})
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", key, err)
		case b.Cluster != [16]byte{} && m.Cluster.ID != b.Cluster || m.Cluster.History != key.History || m.Index != key.Index:
			b.Problems = append(b.Problems, Problem{File: key.String(), What: fmt.Sprintf("manifest %d of history %d of cluster %x", m.Index, m.Cluster.History, m.Cluster.ID)})
			continue
		}
		b.Manifest, b.key, b.Cluster, b.Name = m, key, m.Cluster.ID, m.Cluster.Name
		b.History = max(b.History, m.Cluster.History)
		return nil
	}
	return nil
}

// mostFrequent is the cluster of most segments.
func mostFrequent(segments []gather.Segment) (id [16]byte) {
	count := map[[16]byte]int{}
	for i := range segments {
		c := segments[i].Header.Cluster
		if count[c]++; count[c] > count[id] {
			id = c
		}
	}
	return id
}

// pieces are the segments of the cluster; those of others are problems.
func (b *Bucket) pieces() (list []salvage.Piece, problems []Problem) {
	for i := range b.Found.Segments {
		s := &b.Found.Segments[i]
		if s.Header.Cluster != b.Cluster {
			problems = append(problems, Problem{
				File: s.Key, At: s.Catalog.Position, From: s.Catalog.Start, To: s.Catalog.End, What: "of another cluster: " + hex.EncodeToString(s.Header.Cluster[:]),
			})
			continue
		}
		list = append(list, pieceOf(s))
	}
	return list, problems
}

func pieceOf(s *gather.Segment) salvage.Piece {
	p := salvage.Piece{
		Place: salvage.Place{Topic: s.Header.TopicID, Partition: s.Header.Partition, Name: s.Header.Topic, Created: s.Header.Created},
		Key:   s.Key, Segment: s.Catalog,
	}
	for _, e := range s.Epochs {
		p.Epochs = append(p.Epochs, state.EpochStart(e))
	}
	return p
}

// segment finds what a piece was made of.
func (b *Bucket) segment(p *salvage.Piece) gather.Segment {
	for i := range b.Found.Segments {
		if s := &b.Found.Segments[i]; s.Key == p.Key && s.Catalog == p.Segment {
			return *s
		}
	}
	return gather.Segment{}
}

// Claim takes the history that follows for this rebuild alone: two never begin the same one.
func (b *Bucket) Claim(ctx context.Context, o Broker, now time.Time) error {
	next := b.History + 1
	if next == 0 {
		return errors.New("no history is left")
	}
	beat := manifest.Beat{Cluster: b.Cluster, Name: b.Name, History: next, Time: now, Store: o.Store}
	_, err := b.Store.Put(ctx, keys.History(next), cold.Bytes(beat.Encode()))
	if errors.Is(err, cold.Exists) {
		return fmt.Errorf("history %d of the cluster was begun by another rebuild just now: %w", next, err)
	}
	return err
}

// Take writes that the cluster lives in its new history, as its leader will every minute.
func (b *Bucket) Take(ctx context.Context, o Broker, now time.Time) error {
	beat := manifest.Beat{Cluster: b.Cluster, Name: b.Name, History: b.History + 1, Time: now, Store: o.Store}
	return b.Store.Replace(ctx, keys.Cluster, beat.Encode())
}

// Mend puts into objects of their own what only objects have that overlap with others (salvage.Seam).
func (b *Bucket) Mend(ctx context.Context, seams []salvage.Seam, r gather.Recut) error {
	for _, x := range seams {
		made, err := r.Cut(ctx, b.segment(x.Piece), x.Start, x.End)
		if err != nil {
			if _, away := errors.AsType[*cold.Error](err); away {
				return err
			}
			b.Problems = append(b.Problems, Problem{File: x.Piece.Key, From: x.Start, To: x.End, What: err.Error()})
			continue
		}
		b.Found.Segments = append(b.Found.Segments, made)
	}
	return nil
}

// notes are what holds instead of what the bucket does not tell.
func (b *Bucket) notes(out *salvage.Result) []string {
	var notes []string
	if b.Manifest == nil {
		notes = notInSegments()[:4]
	} else {
		notes = append(notes, fmt.Sprintf("topics, settings and subscriptions are as of %s (%s): what was changed or acknowledged after that", render.Time(b.Manifest.Time), b.key))
	}
	if n := len(b.Found.Others); n > 0 {
		notes = append(notes, fmt.Sprintf("%s whose names are none of ours, such as %s", render.Plural(n, "object"), b.Found.Others[0]))
	}
	for _, id := range out.Unlisted {
		if b.Manifest != nil {
			notes = append(notes, fmt.Sprintf("settings of topic %s, which is younger than that: reliable, durability local, as many partitions as hold something", id))
		}
	}
	return append(notes, "what was acknowledged and lay in no object yet: whether an offset that is missing behind the last object ever held a message, nobody knows")
}
