package fetch

import (
	"testing"
	"time"
)

// eat has a reader come to so many bytes, in blocks, within a time.
func (p *pace) eat(now *time.Time, n int64, within time.Duration, waited bool) {
	blocks := n / blockSize
	for range blocks {
		*now = now.Add(within / time.Duration(blocks))
		p.moved(*now, blockSize, waited, 4)
	}
}

// A reader that is soon through with a request gets a larger one, up to the largest.
func TestPaceGrows(t *testing.T) {
	var p pace
	now := time.Unix(1, 0)
	for i, want := range []int64{1, 4, 8, 16, 32, 32} {
		got := p.request(now)
		if got != want*blockSize {
			t.Errorf("request %d of %d bytes, want %d blocks", i, got, want)
		}
		p.eat(&now, got, time.Duration(1+300*i)*time.Millisecond, true)
	}
}

// The first block alone is read until the reader shows that it wants more.
func TestPaceBeginsWithNothingAhead(t *testing.T) {
	var p pace
	if p.request(time.Unix(1, 0)); p.window() != blockSize {
		t.Errorf("%d bytes may be asked for", p.window())
	}
}

// Requests last a reader for a second or some, whether it reads evenly or by fits and starts.
func TestPaceFollowsTheReader(t *testing.T) {
	for name, test := range map[string]struct {
		each     int64 // bytes of a fit
		every    time.Duration
		min, max int64
	}{
		"a block in five seconds":   {blockSize, 5 * time.Second, blockSize, blockSize},
		"four blocks at once, then": {4 * blockSize, 10 * time.Second, blockSize, 8 * blockSize},
		"1 MiB a second":            {blockSize, time.Second / 4, 4 * blockSize, 16 * blockSize},
		"10 MiB a second":           {blockSize, time.Second / 40, maxRequest, maxRequest},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			now := time.Unix(1, 0)
			p.request(now)
			for i := range 1000 {
				p.eat(&now, test.each, 0, false)
				now = now.Add(test.every)
				if i > 500 && (p.size < test.min || p.size > test.max) {
					t.Fatalf("requests of %d bytes", p.size)
				}
			}
		})
	}
}

// Who waits has more under way, who never does less, within bounds.
func TestPaceDepth(t *testing.T) {
	var p pace
	now := time.Unix(1, 0)
	p.request(now)
	p.eat(&now, 64<<20, time.Second, true)
	if p.depth != 4 {
		t.Errorf("%d requests ahead of a reader that waits", p.depth)
	}
	p.eat(&now, (calmAfter-1)*blockSize, time.Second, false)
	if p.depth != 4 {
		t.Error("gave up too soon")
	}
	p.eat(&now, 10*calmAfter*blockSize, time.Second, false)
	if p.depth != 2 {
		t.Errorf("%d requests ahead of a reader that never waits", p.depth)
	}
}

// No request is made for a rest that is not worth one, and none is larger than it may be.
func TestSpan(t *testing.T) {
	for _, test := range []struct {
		from, count int
		size        int64
		want        int
	}{
		{0, 256, blockSize, 1}, {0, 256, maxRequest, 32}, {224, 257, maxRequest, 33}, {224, 260, maxRequest, 36},
		{224, 261, maxRequest, 32}, {0, 3, blockSize, 3}, {0, 5, blockSize, 5}, {0, 6, blockSize, 1}, {5, 6, maxRequest, 1}, {0, 100, 1, 1},
	} {
		if got := span(test.from, test.count, test.size); got != test.want {
			t.Errorf("blocks %d of %d in requests of %d: %d, want %d", test.from, test.count, test.size, got, test.want)
		}
	}
}
