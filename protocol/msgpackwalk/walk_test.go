package msgpackwalk

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func TestCheckVerdicts(t *testing.T) {
	deep := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"empty buffer":                         {nil, ErrTruncated},
		"nil":                                  {[]byte{0xc0}, nil},
		"small integer":                        {[]byte{0x7f}, nil},
		"negative small integer":               {[]byte{0xff}, nil},
		"two values":                           {[]byte{0xc0, 0xc0}, ErrTrailing},
		"never used byte":                      {[]byte{0xc1}, ErrInvalid},
		"never used byte nested":               {[]byte{0x91, 0xc1}, ErrInvalid},
		"empty map":                            {[]byte{0x80}, nil},
		"empty array 32":                       {[]byte{0xdd, 0, 0, 0, 0}, nil},
		"map without its value":                {[]byte{0x81, 0xa1, 'k'}, ErrTruncated},
		"array of 2^29 in five bytes":          {[]byte{0xdd, 0x1f, 0xff, 0xff, 0xff}, ErrTruncated},
		"map of 2^29 in five bytes":            {[]byte{0xdf, 0x1f, 0xff, 0xff, 0xff}, ErrTruncated},
		"map of 2^32-1":                        {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0}, ErrTruncated},
		"bin longer than the buffer":           {[]byte{0xc6, 0x20, 0, 0, 0, 1, 2}, ErrTruncated},
		"bin exact":                            {[]byte{0xc4, 2, 1, 2}, nil},
		"bin with a byte over":                 {[]byte{0xc4, 2, 1, 2, 3}, ErrTrailing},
		"string cut":                           {[]byte{0xa5, 'a', 'b'}, ErrTruncated},
		"length field cut":                     {[]byte{0xda, 0}, ErrTruncated},
		"ext with its type byte":               {[]byte{0xc7, 1, 5, 9}, nil},
		"ext without its type byte":            {[]byte{0xc7, 1, 5}, ErrTruncated},
		"fixext 16":                            {append([]byte{0xd8, 1}, make([]byte, 16)...), nil},
		"depth at the limit":                   {deep(MaxDepth), nil},
		"depth one over the limit":             {deep(MaxDepth + 1), ErrTooDeep},
		"16 MiB of nested arrays":              {deep(16 << 20), ErrTooDeep},
		"empty arrays do not add depth":        {append(bytes.Repeat([]byte{0x91}, MaxDepth), 0x90), nil},
		"siblings do not add depth":            {append([]byte{0xdc, 0, 40}, bytes.Repeat([]byte{0x91, 0xc0}, 40)...), nil},
		"element missing after a nested value": {[]byte{0x92, 0x91, 0xc0}, ErrTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(c.in); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("Check = %v, want %v", err, c.want)
			}
		})
	}
}

// sample holds every type byte family the encoder can produce.
func sample(t testing.TB) []byte {
	t.Helper()
	big := make([]int, 70000)
	m := map[string]any{"m": map[string]any{}}
	for i := range 20 {
		m["m"].(map[string]any)[strings.Repeat("k", i+1)] = i
	}
	b, err := msgpack.Marshal([]any{
		nil, true, false, 1, -1, 200, -100, 40000, -30000, uint32(1 << 31), int64(math.MinInt64), uint64(math.MaxUint64),
		float32(1.5), 2.5, "short", strings.Repeat("s", 40), strings.Repeat("s", 300), strings.Repeat("s", 70000),
		make([]byte, 10), make([]byte, 300), make([]byte, 70000), []any{}, make([]int, 20), big, m,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCheckAcceptsWhatTheEncoderWritesAndNoPrefixOfIt(t *testing.T) {
	b := sample(t)
	if err := Check(b); err != nil {
		t.Fatalf("whole value: %v", err)
	}
	for _, n := range []int{1, 2, 3, 10, 50, 100, 500, len(b) / 2, len(b) - 1} {
		if err := Check(b[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("prefix of %d bytes: %v", n, err)
		}
	}
	if err := Check(append(b, 0xc0)); !errors.Is(err, ErrTrailing) {
		t.Errorf("with a byte over: %v", err)
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	good, bad := sample(t), []byte{0xdd, 0x1f, 0xff, 0xff, 0xff}
	if n := testing.AllocsPerRun(10, func() { _, _ = Check(good), Check(bad) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte{0x82, 0xa1, 'a', 1, 0xa1, 'b', 0x93, 1, 2, 0xc4, 1, 9})
	f.Add([]byte{0xdf, 0x1f, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x91}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 || Check(b) != nil {
			return
		}
		// What Check passes, the decoder can step over whole: same end, no panic, no runaway allocation.
		r := bytes.NewReader(b)
		if err := msgpack.NewDecoder(r).Skip(); err == nil && r.Len() != 0 {
			t.Fatalf("decoder left %d of %d bytes that passed: %x", r.Len(), len(b), b)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	in := sample(b)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if Check(in) != nil {
			b.Fatal("refused")
		}
	}
}
