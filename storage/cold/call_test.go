package cold

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
	"gocloud.dev/blob/memblob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answered is an error of a server that says why.
type answered struct {
	status int
	code   string
}

func (e *answered) Error() string { return fmt.Sprintf("status %d %s", e.status, e.code) }

// scripted is a bucket in memory whose uploads do what a test wants. Every other request works.
type scripted struct {
	upload func(ctx context.Context, key string, data []byte) ([]byte, error) // nil: write, and say the right digest
	bucket *Bucket

	mu      sync.Mutex
	uploads int
	renewed int
	pauses  []time.Duration
}

func (f *scripted) open(t *testing.T, change func(*Config)) *Store {
	t.Helper()
	f.bucket = &Bucket{
		Blob:   memblob.OpenBucket(nil),
		Upload: f.put,
		Answer: func(err error) (int, string) {
			if a, ok := errors.AsType[*answered](err); ok {
				return a.status, a.code
			}
			if causeWithoutAnswer(err) == Exists {
				return 412, ""
			}
			if causeWithoutAnswer(err) == NotFound {
				return 404, ""
			}
			return 0, ""
		},
		Renew: func() { f.renewed++ },
	}
	cfg := Config{
		URL:      "scripted://place",
		Drivers:  func(context.Context, *url.URL, Hooks) (*Bucket, error) { return f.bucket, nil },
		Attempts: 5,
		Jitter:   func() float64 { return 0 },
		Wait: func(ctx context.Context, d time.Duration) error {
			f.mu.Lock()
			f.pauses = append(f.pauses, d)
			f.mu.Unlock()
			return ctx.Err()
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (f *scripted) put(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.uploads++
	f.mu.Unlock()
	if f.upload != nil {
		return f.upload(ctx, key, data)
	}
	return f.store(ctx, key, data, absent)
}

func (f *scripted) store(ctx context.Context, key string, data []byte, absent bool) ([]byte, error) {
	s := &Store{bucket: &Bucket{Blob: f.bucket.Blob}}
	sum := md5.Sum(data)
	return sum[:], s.write(ctx, key, bytes.NewReader(data), absent)
}

func wantCause(t *testing.T, err error, c Cause) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Cause != c {
		t.Fatalf("got %v, want %v", err, c)
	}
	return e
}

func TestPausesGrowAndSpread(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		jitter float64
		want   []time.Duration
	}{
		"unavailable":      {500, 0, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}},
		"throttled":        {429, 0, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}},
		"spread, almost 1": {500, 0.99999999, []time.Duration{99 * time.Millisecond, 199 * time.Millisecond, 399 * time.Millisecond, 799 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &scripted{upload: func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: test.status} }}
			s := f.open(t, func(c *Config) { c.Jitter = func() float64 { return test.jitter } })
			_, err := s.Put(t.Context(), "k", Bytes([]byte("x")))
			e, _ := errors.AsType[*Error](err)
			if e == nil || e.Attempts != 5 || f.uploads != 5 {
				t.Fatalf("%v after %d uploads", err, f.uploads)
			}
			for i := range f.pauses {
				f.pauses[i] = f.pauses[i].Truncate(time.Millisecond)
			}
			if !slices.Equal(f.pauses, test.want) {
				t.Errorf("pauses %v, want %v", f.pauses, test.want)
			}
		})
	}
}

// What a repetition does not mend is not repeated.
func TestNoRepetitionInVain(t *testing.T) {
	for status, want := range map[int]Cause{400: Refused, 507: Full, 404: NoBucket} {
		f := &scripted{upload: func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: status} }}
		s := f.open(t, nil)
		_, err := s.Put(t.Context(), "k", Bytes([]byte("x")))
		if e := wantCause(t, err, want); e.Attempts != 1 || len(f.pauses) != 0 {
			t.Errorf("%d: %d attempts, pauses %v", status, e.Attempts, f.pauses)
		}
	}
}

func TestDeniedRenewsOnce(t *testing.T) {
	f := &scripted{}
	s := f.open(t, nil)
	f.upload = func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: 403} }
	_, err := s.Put(t.Context(), "k", Bytes([]byte("x")))
	if e := wantCause(t, err, Denied); e.Attempts != 2 || f.renewed != 1 {
		t.Errorf("%d attempts, renewed %d times", e.Attempts, f.renewed)
	}
	f.upload = func(ctx context.Context, key string, data []byte) ([]byte, error) {
		if f.renewed < 2 {
			return nil, &answered{status: 403}
		}
		return f.store(ctx, key, data, true)
	}
	if _, err := s.Put(t.Context(), "k", Bytes([]byte("x"))); err != nil {
		t.Error(err)
	}
}

// Who gives up during a pause is told that it did.
func TestGivenUpDuringAPause(t *testing.T) {
	f := &scripted{upload: func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: 503} }}
	ctx, cancel := context.WithCancel(t.Context())
	s := f.open(t, func(c *Config) {
		c.Wait = func(ctx context.Context, _ time.Duration) error {
			cancel()
			return ctx.Err()
		}
	})
	_, err := s.Put(ctx, "k", Bytes([]byte("x")))
	if e := wantCause(t, err, Canceled); e.Attempts != 1 {
		t.Errorf("%d attempts", e.Attempts)
	}
}

// The deadlines of all attempts and pauses together end before the call's own, whatever the caller's patience is; and the
// last attempt has time as well.
func TestInnerDeadlinesSumBelowTheOuter(t *testing.T) {
	for _, patience := range []time.Duration{0, 100 * time.Millisecond, 2 * time.Second, 40 * time.Second, time.Hour} {
		t.Run(patience.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limits []time.Duration
				f := &scripted{upload: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
					d, ok := ctx.Deadline()
					if !ok {
						t.Error("an attempt without a deadline")
					}
					limits = append(limits, time.Until(d))
					<-ctx.Done()
					return nil, ctx.Err()
				}}
				s := f.open(t, func(c *Config) { c.Wait, c.Jitter = nil, func() float64 { return 0.5 } })
				ctx, cancel := context.WithCancel(t.Context())
				if patience > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), patience)
				}
				defer cancel()
				began := time.Now()
				_, err := s.Put(ctx, "k", Bytes([]byte("x")))
				wantCause(t, err, TimedOut)
				took, outer := time.Since(began), 90*time.Second
				if patience > 0 {
					outer = min(outer, patience)
				}
				if ctx.Err() != nil || took >= outer {
					t.Errorf("took %v of %v", took, outer)
				}
				if len(limits) < 2 {
					t.Errorf("attempts of %v: the first used up the time of all", limits)
				}
				for _, l := range limits {
					if l > 15*time.Second+time.Millisecond {
						t.Errorf("attempts of %v", limits)
					}
				}
			})
		})
	}
}

// A call that hangs holds up no other.
func TestNothingWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, nil)
		f.upload = func(ctx context.Context, key string, data []byte) ([]byte, error) {
			if strings.HasPrefix(key, "hang") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return f.store(ctx, key, data, true)
		}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, err := s.Put(t.Context(), fmt.Sprintf("hang/%d", i), Bytes([]byte("x")))
				if !errors.Is(err, TimedOut) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for i := range 20 {
			if _, err := s.Put(t.Context(), fmt.Sprintf("free/%d", i), Bytes([]byte("x"))); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("others took %v", took)
		}
		wg.Wait()
	})
}

// A store that fails everything is asked little more than once for each call; one that works again earns its retries back.
func TestBudgetOfRetries(t *testing.T) {
	f := &scripted{upload: func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: 500} }}
	s := f.open(t, nil)
	const calls = 500
	for i := range calls {
		if _, err := s.Put(t.Context(), fmt.Sprint(i), Bytes(nil)); err == nil {
			t.Fatal("it succeeded")
		}
	}
	if f.uploads > calls+budgetSize {
		t.Errorf("%d requests for %d calls", f.uploads, calls)
	}
	if got := testutil.ToFloat64(s.m.exhausted); got == 0 {
		t.Error("no retry was counted as refused")
	}
	f.upload = nil
	for i := range 100 {
		if _, err := s.Put(t.Context(), fmt.Sprint(i), Bytes(nil)); err != nil {
			t.Fatal(err)
		}
	}
	f.upload = func(context.Context, string, []byte) ([]byte, error) { return nil, &answered{status: 500} }
	_, err := s.Put(t.Context(), "x", Bytes(nil))
	if e := wantCause(t, err, Unavailable); e.Attempts != 5 {
		t.Errorf("%d attempts once it had worked again", e.Attempts)
	}
}

// After a call nothing reads its body any more, whatever an HTTP client still wants of it.
func TestBodyIsLeftAlone(t *testing.T) {
	f := &scripted{}
	s := f.open(t, nil)
	var kept io.ReadSeeker
	f.bucket.Upload = func(_ context.Context, _ string, body io.ReadSeeker, _ bool) ([]byte, error) {
		kept = body
		return nil, &answered{status: 400}
	}
	if _, err := s.Put(t.Context(), "k", Bytes([]byte("x"))); err == nil {
		t.Fatal("it succeeded")
	}
	if n, err := kept.Read(make([]byte, 1)); n != 0 || !errors.Is(err, errShut) {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := kept.Seek(0, io.SeekStart); !errors.Is(err, errShut) {
		t.Error(err)
	}
}

func TestMetricsAreCleanAndCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := &scripted{}
	s := f.open(t, func(c *Config) { c.Metrics = reg })
	failed := false
	f.upload = func(ctx context.Context, key string, data []byte) ([]byte, error) {
		if !failed {
			failed = true
			return nil, &answered{status: 503, code: "SlowDown"}
		}
		return f.store(ctx, key, data, true)
	}
	if _, err := s.Put(t.Context(), "k", Bytes(make([]byte, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadAt(t.Context(), "k", make([]byte, 300), 5); err != nil {
		t.Fatal(err)
	}
	s.m.request("PUT")
	for want, got := range map[float64]prometheus.Collector{1: s.m.failures.WithLabelValues("put", "throttled"), 1000: s.m.bytes.WithLabelValues("sent")} {
		if testutil.ToFloat64(got) != want {
			t.Errorf("%v is counted, want %v", testutil.ToFloat64(got), want)
		}
	}
	if n := testutil.CollectAndCount(s.m.seconds); n != 2 {
		t.Errorf("%d kinds of requests, want put and read", n)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) != 6 {
		t.Errorf("%d families, %v, %v", len(families), problems, err)
	}
	for _, m := range families {
		if !strings.HasPrefix(m.GetName(), "danube_cold_") {
			t.Error(m.GetName())
		}
	}
	again := &scripted{}
	if _, err := Open(t.Context(), Config{URL: "mem://", Metrics: reg}); err == nil {
		t.Error("two stores share their series")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again.open(t, func(c *Config) { c.Metrics = reg })
}
