package history

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

func TestPayloadComesBackAsItsValue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 10, 64, 1024, 100000} {
		want := value{producer: 7, seq: 1 << 40}
		payload, sum := encode(0xabcd, want, size, rnd)
		if len(payload) < size || bytes.ContainsRune(payload, '\n') {
			t.Fatalf("size %d: payload of %d bytes, or with a newline", size, len(payload))
		}
		v, s, err := decode(0xabcd, payload)
		if err != nil || v != want || s != sum {
			t.Fatalf("size %d: decoded %v %x %v, want %v %x", size, v, s, err, want, sum)
		}
	}
}

func TestEveryFlippedBitIsForeign(t *testing.T) {
	payload, _ := encode(3, value{1, 2}, 80, rand.New(rand.NewPCG(1, 2)))
	for bit := range len(payload) * 8 {
		damaged := bytes.Clone(payload)
		damaged[bit/8] ^= 1 << (bit % 8)
		// A hex digit of the checksum in the other case says the same.
		if bytes.EqualFold(damaged[:8], payload[:8]) && bytes.Equal(damaged[8:], payload[8:]) {
			continue
		}
		if _, _, err := decode(3, damaged); !errors.Is(err, ErrForeign) {
			t.Fatalf("bit %d flipped: decoded as ours", bit)
		}
	}
	for n := range len(payload) {
		if _, _, err := decode(3, payload[:n]); !errors.Is(err, ErrForeign) {
			t.Fatalf("cut to %d bytes: decoded as ours", n)
		}
	}
	if _, _, err := decode(4, payload); !errors.Is(err, ErrForeign) {
		t.Fatal("a payload of another run decoded as ours")
	}
}

func FuzzDecodeTakesNothingForeign(f *testing.F) {
	payload, _ := encode(3, value{1, 2}, 80, rand.New(rand.NewPCG(1, 2)))
	f.Add(payload)
	f.Add([]byte("00000000 3 1 2 x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, sum, err := decode(3, b)
		if err == nil && (len(b) < 16 || checksum(b[9:]) != sum) {
			t.Fatalf("took %q as %v", b, v)
		}
	})
}
