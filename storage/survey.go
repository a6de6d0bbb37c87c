package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// Evidence is what the segment files of a data directory say of the cluster they belong to, for metadata that are to be
// made again (R22).
type Evidence struct {
	Store      [16]byte
	Cluster    [16]byte         // zero: no file names one
	History    uint16           // the newest that a file was written in
	Partitions []FoundPartition // by topic and number
	Problems   []Problem
}

// FoundPartition is what lies here of a partition.
type FoundPartition struct {
	ID      PartitionID
	Topic   string  // its name, by the newest file
	Created int64   // of the newest file, ms since 1970
	Pieces  []Piece // ascending, disjoint; epochs grow along them
	Files   int
	Bytes   int64
}

// End is the offset behind the last message.
func (f *FoundPartition) End() uint64 {
	if len(f.Pieces) == 0 {
		return 0
	}
	return f.Pieces[len(f.Pieces)-1].End
}

// Piece is a run of offsets without a hole, all of one epoch. One without offsets says only that the epoch was opened.
type Piece struct {
	Epoch, Start, End uint64
}

// Problem is a file that was left out, or a part of one that is damaged, and why.
type Problem struct {
	File string
	Err  error
}

// Survey reads the segment files below a data directory, and changes nothing: what is in the journal and in no file yet is
// not in it. Settle adds that. Errors: *IdentityError, those of reading, and of data that a newer binary wrote
// *segment.VersionError. One file's damage stops no other.
func Survey(fsys disk.FS, dir string) (Evidence, error) {
	id, err := Identity(fsys, dir)
	if err != nil {
		return Evidence{}, err
	}
	e := Evidence{Store: id}
	err = walkPartitions(fsys, dir, func(names []string) error {
		s := surveyed{evidence: &e, fsys: fsys}
		for _, name := range names {
			if err := s.file(name); err != nil {
				return err
			}
		}
		s.done()
		return nil
	})
	if err != nil {
		return Evidence{}, fmt.Errorf("survey %s: %w", dir, err)
	}
	slices.SortFunc(e.Partitions, func(a, b FoundPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), slices.Compare(a.ID.Topic[:], b.ID.Topic[:]), cmp.Compare(a.ID.Partition, b.ID.Partition))
	})
	return e, nil
}

// Identity reads the id of the store in a data directory and changes nothing. Errors: *IdentityError.
func Identity(fsys disk.FS, dir string) ([16]byte, error) {
	id, err := readIdentity(fsys, dir)
	if _, newer := errors.AsType[*segment.VersionError](err); err == nil || newer {
		return id, err
	}
	found, _, serr := searchIdentity(fsys, dir)
	return [16]byte{}, errors.Join(&IdentityError{File: identityName(dir), Found: found, Err: err}, serr)
}

// surveyed is a partition while its files are read.
type surveyed struct {
	evidence *Evidence
	fsys     disk.FS
	found    FoundPartition
	pieces   []Piece
}

// file adds a segment file. Its error stops the survey.
func (s *surveyed) file(name string) error {
	f, err := s.fsys.Open(name, 0)
	if err != nil {
		return err
	}
	err = s.read(name, f)
	if _, newer := errors.AsType[*segment.VersionError](err); newer {
		return errors.Join(err, f.Close())
	}
	if err != nil {
		s.evidence.Problems = append(s.evidence.Problems, Problem{File: name, Err: err})
	}
	return f.Close()
}

func (s *surveyed) read(name string, f disk.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	h, _, err := segment.ReadHeader(f)
	if err != nil {
		return err
	}
	if err := s.belongs(&h); err != nil {
		return err
	}
	pieces, err := piecesOf(f, size, &h)
	if err != nil {
		return err
	}
	s.pieces = append(s.pieces, pieces...)
	s.found.ID = PartitionID{Topic: h.TopicID, Partition: h.Partition}
	if s.found.Files == 0 || h.Created >= s.found.Created {
		s.found.Topic, s.found.Created = h.Topic, h.Created
	}
	s.found.Files++
	s.found.Bytes += size
	s.evidence.History = max(s.evidence.History, h.History, uint16(h.Epoch>>48))
	return nil
}

// belongs refuses a file of another store, cluster or partition than the files before.
func (s *surveyed) belongs(h *segment.Header) error {
	id := PartitionID{Topic: h.TopicID, Partition: h.Partition}
	switch {
	case h.Store != s.evidence.Store:
		return fmt.Errorf("file of store %x", h.Store)
	case s.found.Files > 0 && id != s.found.ID:
		return fmt.Errorf("file of partition %s among those of %s", id, s.found.ID)
	case h.Cluster != [16]byte{} && s.evidence.Cluster == [16]byte{}:
		s.evidence.Cluster = h.Cluster
	case h.Cluster != [16]byte{} && h.Cluster != s.evidence.Cluster:
		return fmt.Errorf("file of cluster %x among those of %x", h.Cluster, s.evidence.Cluster)
	}
	return nil
}

// piecesOf reads which offsets a file holds: its footer says so, or the batches up to the first that is not whole.
func piecesOf(f disk.File, size int64, h *segment.Header) ([]Piece, error) {
	if footer, err := segment.ReadFooter(f, size); err == nil {
		return epochPieces(h, footer), nil
	}
	p := Piece{Epoch: h.Epoch, Start: h.Base, End: h.Base}
	stop := errors.New("not whole")
	_, err := segment.Dump(f, size, func(st segment.Stretch) error {
		if st.Kind != segment.Whole || st.Found {
			return stop
		}
		p.End = st.To
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return nil, err
	}
	return []Piece{p}, nil
}

// epochPieces cuts a sealed file at its epochs.
func epochPieces(h *segment.Header, footer *segment.Footer) []Piece {
	if len(footer.Epochs) == 0 {
		return []Piece{{Epoch: h.Epoch, Start: h.Base, End: max(h.Base, footer.End)}}
	}
	var list []Piece
	for i, e := range footer.Epochs {
		p := Piece{Epoch: e.Epoch, Start: e.Start, End: footer.End}
		if i == 0 {
			p.Start = min(p.Start, h.Base)
		}
		if i+1 < len(footer.Epochs) {
			p.End = footer.Epochs[i+1].Start
		}
		list = append(list, p)
	}
	return list
}

// done puts the pieces in order and adds the partition to the evidence.
func (s *surveyed) done() {
	if s.found.Files == 0 {
		return
	}
	s.found.Pieces = settlePieces(s.pieces)
	s.evidence.Partitions = append(s.evidence.Partitions, s.found)
}

// settlePieces gives each offset to one epoch: from the first offset of an epoch on, those before it count no more (R22).
// Pieces of one epoch that go on where another ends become one.
func settlePieces(pieces []Piece) []Piece {
	slices.SortFunc(pieces, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Start, b.Start)) })
	first := make(map[uint64]uint64) // of each epoch
	for _, p := range pieces {
		if _, ok := first[p.Epoch]; !ok {
			first[p.Epoch] = p.Start
		}
	}
	limit, epoch, cut := ^uint64(0), uint64(0), ^uint64(0)
	for i := len(pieces) - 1; i >= 0; i-- {
		if p := &pieces[i]; i == len(pieces)-1 || p.Epoch != epoch {
			limit, epoch = cut, p.Epoch
			cut = min(cut, first[epoch])
		}
		pieces[i].End = min(pieces[i].End, limit)
	}
	var list []Piece
	for _, p := range pieces {
		n := len(list)
		switch {
		case p.Start > p.End || p.Start == p.End && n > 0 && list[n-1].Epoch == p.Epoch:
		case n > 0 && list[n-1].Epoch == p.Epoch && p.Start <= list[n-1].End:
			list[n-1].End = max(list[n-1].End, p.End)
		default:
			list = append(list, p)
		}
	}
	return list
}

// Settle recovers the newest epoch of every partition of the evidence as a start after an unclean stop does (R10), what the
// journal held included, corrects where it ends, and seals it. No partition may be open.
func (s *Store) Settle(ctx context.Context, e *Evidence) error {
	for i := range e.Partitions {
		p := &e.Partitions[i]
		log, found, err := s.Log(ctx, Facts{ID: p.ID, Topic: p.Topic, Ranges: openRanges(p.Pieces), LogStart: p.Pieces[0].Start})
		if err != nil {
			return fmt.Errorf("recover %s:%d: %w", p.Topic, p.ID.Partition, err)
		}
		last := &p.Pieces[len(p.Pieces)-1]
		last.End = max(last.Start, found.End)
		for _, d := range found.Damaged {
			e.Problems = append(e.Problems, Problem{File: d.File, Err: fmt.Errorf("offsets %d to %d: %w", d.From, d.To-1, d.Err)})
		}
		if err := log.Close(); err != nil {
			return fmt.Errorf("seal %s:%d: %w", p.Topic, p.ID.Partition, err)
		}
	}
	return nil
}

// openRanges are the pieces as ranges, the last one open.
func openRanges(pieces []Piece) []Range {
	var list []Range
	for i, p := range pieces {
		list = append(list, Range{
			Start: p.Start, End: p.End, Status: RangeSealed, Open: i == len(pieces)-1, Epochs: []EpochStart{{Epoch: p.Epoch, Start: p.Start}},
		})
	}
	last := &list[len(list)-1]
	last.Status, last.End = RangeOpen, 0
	return list
}

// journalFile is the journal in a data directory.
const journalFile = "journal"

// HasJournal reports whether a data directory that is not in use has messages that may be in no segment file yet.
func HasJournal(fsys disk.FS, dir string) (bool, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("look for the journal: %w", err)
	}
	return slices.ContainsFunc(entries, func(e disk.Entry) bool { return e.Name == journalFile }), nil
}
