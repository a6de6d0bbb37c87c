package history

import (
	"math"
	"slices"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// idOf names a partition as the store does.
func idOf(m *state.Partition) storage.PartitionID {
	return storage.PartitionID{Topic: m.Topic, Partition: m.Number}
}

// Facts are what the metadata says of a partition, as the store takes it to serve
// it. An open range of other stores is left out: nothing of it is here. Then what
// was acknowledged is expected here only as far as a range says where it lies:
// what is ORPHANED above is known to be missing, and no damage of this disk.
func Facts(t *state.Topic, p *state.Partition, self state.StoreID) storage.Facts {
	f := storage.Facts{
		ID: idOf(p), Topic: t.Name, LogStart: p.LogStart, Floor: p.Floor, Cold: covered(p),
	}
	held, open := uint64(0), false
	for i := range p.Ranges {
		r := &p.Ranges[i]
		here := slices.Contains(r.Stores, self)
		switch {
		case r.Status == state.RangeOpen && !here:
			continue
		case r.Status == state.RangeOpen:
			open = true
		case r.Status == state.RangeSealed:
			held = r.End
		}
		out := storageRange(r)
		out.Away = !here
		f.Ranges = append(f.Ranges, out)
	}
	if !open {
		f.Floor = min(f.Floor, held)
	}
	return f
}

// archiveFacts are what this store holds of a partition that others serve: the
// sealed ranges that list it, and rg. An ORPHANED or LOST one is opened as it was
// when this store wrote it: where it ends, recovery finds out (R10). What nobody
// may read lies in none of them.
func archiveFacts(t *state.Topic, m *state.Partition, rg *state.Range, self state.StoreID) (*storage.Facts, *storage.Range) {
	f := &storage.Facts{ID: idOf(m), Topic: t.Name, LogStart: rg.Start, Floor: rg.Start, Cold: below(covered(m), rg.End)}
	want := storageRange(rg)
	if want.Status = storage.RangeSealed; rg.Status != state.RangeSealed && (rg.Tail || rg.Status == state.RangeLost) {
		want.Open, want.Status = true, storage.RangeOpen
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		switch {
		case r.Start == rg.Start:
			f.Ranges = append(f.Ranges, want)
			if want.Open {
				return f, &want // nothing lies behind an open one
			}
		case r.Status == state.RangeSealed && slices.Contains(r.Stores, self):
			f.Ranges = append(f.Ranges, storageRange(r))
			f.LogStart = min(f.LogStart, r.Start)
		}
	}
	return f, &want
}

// covered are the offsets that the catalog of a partition covers.
func covered(m *state.Partition) (out []storage.Offsets) {
	for at := m.Catalog.Room(0); at < math.MaxUint64; {
		to := m.Catalog.Gap(at)
		out = append(out, storage.Offsets{From: at, To: to})
		at = m.Catalog.Room(to)
	}
	return out
}

// below are the offsets of a list under a bound: what the cold tier has above a tail
// says nothing of where the tail ends.
func below(list []storage.Offsets, end uint64) (out []storage.Offsets) {
	for _, o := range list {
		if o.From < end {
			out = append(out, storage.Offsets{From: o.From, To: min(o.To, end)})
		}
	}
	return out
}

// uncovered are the parts of a range, from the start of the log on, that the catalog
// of its partition does not cover.
func uncovered(m *state.Partition, rg *state.Range) (out []span) {
	for at := max(rg.Start, m.LogStart); ; {
		if at = m.Catalog.Gap(at); at >= rg.End {
			return out
		}
		to := min(rg.End, m.Catalog.Room(at))
		out = append(out, span{at, to})
		at = to
	}
}

// storageRange is a range as the store takes it.
func storageRange(r *state.Range) storage.Range {
	out := storage.Range{Start: r.Start, End: r.End, Open: r.Status == state.RangeOpen, Status: storage.Status(r.Status)}
	for _, e := range r.Epochs {
		out.Epochs = append(out.Epochs, storage.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return out
}
