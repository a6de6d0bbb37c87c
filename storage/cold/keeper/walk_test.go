package keeper

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/segment"
)

// walked gives data to a walker in pieces of a length, and returns the offsets of what it hands on.
func walked(data []byte, s catalog.Segment, p upkeep.Partition, piece int) (list []uint64, err error) {
	w := &walker{key: "k", segment: s, part: &p, head: func(segment.Header) error { return nil }, each: func(b batch.Batch) error {
		list = append(list, b.Base())
		return nil
	}}
	for part := range slices.Chunk(data, piece) {
		if err := w.write(part); err != nil {
			return list, err
		}
	}
	_, err = w.finish()
	return list, err
}

// small is a segment as the store has it, and the partition it is of.
func small(t testing.TB) ([]byte, catalog.Segment, upkeep.Partition) {
	w := newWorld(t, 1)
	data, s := w.segment(0, 3, 60)
	s.Object = catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 1}
	return data, s, mustFind(w, 0)
}

func TestPiecesOfAnyLengthAreTaken(t *testing.T) {
	data, s, p := small(t)
	want, err := walked(data, s, p, len(data))
	if err != nil || len(want) != 4 {
		t.Fatalf("%v, %v", want, err)
	}
	for _, piece := range []int{1, 7, 64, 100, len(data) - 1} {
		if got, err := walked(data, s, p, piece); err != nil || !slices.Equal(got, want) {
			t.Errorf("pieces of %d: %v, %v", piece, got, err)
		}
	}
}

// TestEveryFlippedBitIsSeen: by the CRCs in the segment alone, since here the catalog's is made to agree.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	data, s, p := small(t)
	for bit := range 8 * len(data) {
		b := bytes.Clone(data)
		b[bit/8] ^= 1 << (bit % 8)
		s.CRC = segment.Sum(b)
		if _, err := walked(b, s, p, len(b)); err == nil {
			t.Fatalf("bit %d of byte %d of %d is not seen", bit%8, bit/8, len(b))
		}
	}
}

// TestWhatDoesNotBelongIsDamage: whole segments that are not the one that the catalog tells.
func TestWhatDoesNotBelongIsDamage(t *testing.T) {
	for name, spoil := range map[string]func(s *catalog.Segment, p *upkeep.Partition){
		"another topic":        func(_ *catalog.Segment, p *upkeep.Partition) { p.Topic[3]++ },
		"another partition":    func(_ *catalog.Segment, p *upkeep.Partition) { p.Number++ },
		"another start":        func(s *catalog.Segment, _ *upkeep.Partition) { s.Start++ },
		"an earlier end":       func(s *catalog.Segment, _ *upkeep.Partition) { s.End-- },
		"a later end":          func(s *catalog.Segment, _ *upkeep.Partition) { s.End++ },
		"another checksum":     func(s *catalog.Segment, _ *upkeep.Partition) { s.CRC++ },
		"another epoch (R19)":  func(_ *catalog.Segment, p *upkeep.Partition) { p.Ranges[0].Epochs[0].Epoch++ },
		"more bytes than told": func(s *catalog.Segment, _ *upkeep.Partition) { s.Bytes-- },
		"fewer":                func(s *catalog.Segment, _ *upkeep.Partition) { s.Bytes++ },
	} {
		t.Run(name, func(t *testing.T) {
			data, s, p := small(t)
			spoil(&s, &p)
			_, err := walked(data, s, p, 100)
			if d, ok := errors.AsType[*Damage](err); !ok || d.Key != "k" {
				t.Errorf("%v, want damage", err)
			}
		})
	}
}

// TestAnotherSegmentOfTheSameLengthIsDamage: whole, of the same offsets and epoch, and not what the catalog tells.
func TestAnotherSegmentOfTheSameLengthIsDamage(t *testing.T) {
	data, s, p := small(t)
	w := newWorld(t, 1)
	w.now = w.now.Add(time.Second)
	other, o := w.segment(0, 3, 60)
	if s.Start != o.Start || s.End != o.End || s.Bytes != o.Bytes || s.CRC == o.CRC {
		t.Fatalf("%+v and %+v", s, o)
	}
	if _, err := walked(other, o, p, 100); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{data, other} {
		wrong := s
		if bytes.Equal(b, data) {
			wrong = o
		}
		wrong.Object = s.Object
		if d, ok := errors.AsType[*Damage](second(walked(b, wrong, p, 100))); !ok || d.Key != "k" {
			t.Fatalf("%v, want damage", d)
		}
	}
}

// TestMangledSegmentsAreSeen: several bytes changed, cut out, or the end lost, in pieces of any length.
func TestMangledSegmentsAreSeen(t *testing.T) {
	data, s, p := small(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		b := bytes.Clone(data)
		switch from := rnd.IntN(len(b)); rnd.IntN(3) {
		case 0:
			b = b[:from]
		case 1:
			b = slices.Delete(b, from, min(len(b), from+1+rnd.IntN(200)))
		default:
			for range 1 + rnd.IntN(20) {
				b[rnd.IntN(len(b))] = byte(rnd.Uint32())
			}
		}
		s.Bytes, s.CRC = int64(len(b)), segment.Sum(b)
		if _, err := walked(b, s, p, 1+rnd.IntN(300)); err == nil && !bytes.Equal(b, data) {
			t.Fatalf("%d bytes of %d are taken for whole", len(b), len(data))
		}
	}
}
