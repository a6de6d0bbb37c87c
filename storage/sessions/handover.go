package sessions

import (
	"bytes"

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
