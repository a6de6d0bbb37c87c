package sessions

import (
	"bytes"
	"iter"

	"github.com/danubemq/danube/storage/segment"
)

// Encode is the table of a log that ends at end, to be handed to the next owner.
// It is a segment footer without messages: it names the end and carries a CRC.
func (p *Table) Encode(end uint64) []byte {
	f := segment.Footer{Facts: segment.Facts{First: end, End: end}}
	return f.Append(nil, p.Stored(end))
}

// Decode is the reverse of Encode: the table, and the end of the log it is of.
func Decode(b []byte) (table *segment.Producers, end uint64, err error) {
	footer, err := segment.ReadFooter(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, 0, err
	}
	table, err = footer.Producers()
	return table, footer.End, err
}

// Take adds what an encoded table says of the batches whose offset is in what is
// asked for. What p knows itself counts.
func (p *Table) Take(b []byte, in func(base uint64) bool) error {
	table, _, err := Decode(b)
	if err != nil {
		return err
	}
	var t Table
	t.Load(table)
	t.keep(in)
	p.MergeTable(&t)
	return nil
}

// All yields every batch that is remembered, those of a session in the order of
// their sequences.
func (p *Table) All() iter.Seq2[Key, segment.Sent] {
	return func(yield func(Key, segment.Sent) bool) {
		for h := p.oldest; h != nil; h = h.newer {
			for _, s := range h.batches {
				if !yield(h.key, s) {
					return
				}
			}
		}
	}
}
