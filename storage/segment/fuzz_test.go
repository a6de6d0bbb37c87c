package segment

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// FuzzHeader: what is read is what would be written.
func FuzzHeader(f *testing.F) {
	f.Add(goldenParts(f)["header-v1.hex"])
	f.Add([]byte(headerMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, n, err := ParseHeader(data)
		if err != nil {
			return
		}
		again, err := h.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data[:n]) && bytes.Equal(data[68:72], make([]byte, 4)) {
			t.Fatalf("%x was read, %x would be written", data[:n], again)
		}
	})
}

// FuzzFooter mends the CRC, so that what lies behind it is reached.
func FuzzFooter(f *testing.F) {
	for _, w := range []*build{goldenSegment(f), small(f), newBuild(f, testHeader())} {
		f.Add(w.seal()[len(w.data):])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= minFooter {
			data = mended(data)
		}
		footer, err := parseFooter(data)
		if err != nil {
			return
		}
		for _, offset := range []uint64{0, footer.First, footer.End, 1 << 63} {
			if span := footer.Find(offset); span.From > span.To || span.From < 0 || span.To > footer.DataEnd {
				t.Fatalf("offset %d is looked for in %v", offset, span)
			}
		}
		table, err := footer.Producers()
		if err != nil {
			return
		}
		again, err := parseFooter(footer.Append(nil, table))
		if err != nil {
			t.Fatal(err)
		}
		if again.Facts != footer.Facts || len(again.Index) != len(footer.Index) || len(again.Epochs) != len(footer.Epochs) {
			t.Fatal("a footer came back as another")
		}
	})
}

// mended is a footer whose frame holds: magic, version, length, CRC.
func mended(data []byte) []byte {
	data = bytes.Clone(data)
	copy(data, footerMagic)
	data[8], data[9] = version, 0
	end := len(data) - trailerSize
	n := len(data)
	data[end], data[end+1], data[end+2], data[end+3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
	crc := combine(parseFacts(data).DataCRC, batch.Checksum(data[:end+4]), end+4)
	data[end+4], data[end+5], data[end+6], data[end+7] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
	copy(data[end+8:], closingMagic)
	return data
}

// FuzzScan: the stretches cover the file, whole batches are whole and grow, and
// no more is held than the file has.
func FuzzScan(f *testing.F) {
	w := small(f)
	f.Add(w.data, uint16(0), byte(0))
	f.Add(w.seal(), uint16(150), byte(1))
	n, _ := nested(f)
	f.Add(n.data, uint16(230), byte(4))
	f.Fuzz(func(t *testing.T, data []byte, at uint16, turn byte) {
		data = bytes.Clone(data)
		if len(data) > 0 {
			data[int(at)%len(data)] ^= turn
		}
		from := testHeader().byName()
		s := NewScanner(bytes.NewReader(data), int64(len(data)), from)
		next, pos := from.Base, int64(0)
		for {
			st, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if _, ok := errors.AsType[*VersionError](err); ok {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if st.At != pos || st.From < next || st.To < st.From {
				t.Fatalf("%s after offset %d at %d", shape([]Stretch{st}), next, pos)
			}
			pos, next = st.At+st.Len, max(next, st.From)
			if st.Kind != Whole {
				continue
			}
			next = st.To
			if b, err := batch.Check(st.Batch, batch.Limits{}); err != nil || b.Epoch() != from.Epoch || b.Base() != st.From {
				t.Fatalf("%s is no batch of this file: %v", shape([]Stretch{st}), err)
			}
		}
		if pos != int64(len(data)) || cap(s.buf) > max(len(data), batch.HeaderSize) {
			t.Fatalf("ended at %d of %d with a buffer of %d", pos, len(data), cap(s.buf))
		}
		if _, err := Verify(bytes.NewReader(data), int64(len(data))); err != nil {
			if _, ok := errors.AsType[*VersionError](err); !ok {
				t.Fatal(err)
			}
		}
	})
}
