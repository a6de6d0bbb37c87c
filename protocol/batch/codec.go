package batch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Codec is how the block of a body is compressed.
type Codec uint8

// The codecs. Their values are part of the format.
const (
	None Codec = 0
	S2   Codec = 1 // the s2 block format
	Zstd Codec = 2 // one zstd frame
)

// String is the name that flags and errors use.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case S2:
		return "s2"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// ParseCodec is the reverse of String.
func ParseCodec(s string) (Codec, error) {
	for _, c := range []Codec{None, S2, Zstd} {
		if c.String() == s {
			return c, nil
		}
	}
	return None, fmt.Errorf("unknown compression %q: use none, s2 or zstd", s)
}

// The zstd coders are costly to make and safe to share: one of each, made at first use.
var (
	zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	})
	zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecodeAllCapLimit(true))
	})
)

// compress appends the compressed block to dst.
func compress(c Codec, dst, block []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, block...), nil
	case S2:
		at, most := len(dst), s2.MaxEncodedLen(len(block))
		if most < 0 {
			return nil, fmt.Errorf("%w: block of %d bytes", ErrTooLarge, len(block))
		}
		if cap(dst)-at < most {
			dst = append(make([]byte, 0, at+most), dst...)
		}
		out := s2.Encode(dst[at:at+most], block)
		return dst[:at+len(out)], nil
	case Zstd:
		enc, err := zstdEncoder()
		if err != nil {
			return nil, err
		}
		return enc.EncodeAll(block, dst), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrVersion, c)
}

// decompress returns the block of exactly size bytes, which the caller has
// bounded: the block itself when it is not compressed, else in the memory of buf or new memory.
func decompress(c Codec, buf, block []byte, size int) ([]byte, error) {
	switch c {
	case None:
		if len(block) != size {
			return nil, corrupt("block length")
		}
		return block, nil
	case S2:
		n, err := s2.DecodedLen(block)
		if err != nil || n != size {
			return nil, corrupt("s2 block length")
		}
		out, err := s2.Decode(slices.Grow(buf[:0], size)[:size], block)
		if err != nil {
			return nil, fmt.Errorf("%w: s2: %w", ErrCorrupt, err)
		}
		return out, nil
	case Zstd:
		dec, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		// A frame's own claim is not believed: the capacity is the limit.
		out, err := dec.DecodeAll(block, slices.Grow(buf[:0], size)[:0:size])
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
		}
		if len(out) != size {
			return nil, corrupt("zstd block length")
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrVersion, c)
}
