package batch

// Parts cuts one batch into parts one after another, decompressing it once and
// walking its table once as long as the parts ascend. The zero value is ready.
// Not safe for concurrent use.
type Parts struct {
	limits Limits
	of     Batch // the batch at hand, by identity
	table  table
	block  []byte
	pos    int // in block, of the row to be read next
	rows   []byte
}

// Append appends to dst the part of b that holds count messages from index
// first on. b must not change while parts are taken of it.
func (p *Parts) Append(dst []byte, b Batch, first, count int) ([]byte, error) {
	if len(p.of) == 0 || &p.of[0] != &b[0] || len(p.of) != len(b) || p.of.Base() != b.Base() || first < p.table.next {
		if err := p.open(b); err != nil {
			return dst, err
		}
	}
	for p.table.next < first {
		r, err := p.table.read()
		if err != nil {
			return dst, err
		}
		p.pos += r.record
	}
	p.rows = p.rows[:0]
	from := p.pos
	for range count {
		r, err := p.table.read()
		if err != nil {
			return dst, err
		}
		p.pos += r.record
		p.rows = appendRow(p.rows, r, true)
	}
	if p.pos > len(p.block) {
		return dst, corrupt("record longer than the block")
	}
	return sealPart(dst, b, p.table.base, p.rows, p.block[from:p.pos], count), nil
}

// Forget lets go of the batch at hand.
func (p *Parts) Forget() { p.of, p.block = nil, nil }

func (p *Parts) open(b Batch) error {
	p.of = nil
	t, err := openTable(b)
	if err != nil {
		return err
	}
	size := b.BodySize() - (len(b.Body()) - len(t.block))
	if size < 0 || size > p.limits.WithDefaults().Body {
		return corrupt("uncompressed length")
	}
	if p.block, err = decompress(b.Codec(), t.block, size); err != nil {
		return err
	}
	p.of, p.table, p.pos = b, t, 0
	return nil
}
