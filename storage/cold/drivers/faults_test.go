package drivers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/storage/cold"
)

// clouds are the servers that a proxy can stand before.
func clouds() map[string]func(testing.TB) *objects.Server {
	return map[string]func(testing.TB) *objects.Server{"s3": objects.StartS3, "gcs": objects.StartGCS, "azure": objects.StartAzure}
}

// TestClouds runs the suite over each cloud's server, and every way to hurt one over a proxy before it.
func TestClouds(t *testing.T) {
	type hurt struct {
		change func(*cold.Config)
		test   func(t *testing.T, p *objects.Proxy, s *cold.Store)
	}
	hasty := func(c *cold.Config) { c.Attempt = 600 * time.Millisecond }
	servers := map[string]*objects.Server{}
	for name, start := range clouds() {
		servers[name] = start(t)
		servers[name].SetEnv(t)
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("Suite", func(t *testing.T) { suite(t, server.URL(server.Addr)) })
			t.Run("NobodyThere", func(t *testing.T) { testNobodyThere(t, server) })
			t.Run("MissingBucket", func(t *testing.T) { testMissingBucket(t, server) })
			for what, h := range map[string]hurt{
				"LostAnswer": {nil, testLostAnswer}, "WriterDies": {nil, testWriterDies}, "HalfThrottled": {nil, testHalfThrottled},
				"ThrottledForGood": {func(c *cold.Config) { c.Attempts = 3 }, testThrottledForGood}, "Denied": {nil, testDenied},
				"HangingUpload": {hasty, testHangingUpload}, "HurtBytes": {nil, testHurtBytes}, "Requests": {nil, testRequests},
				"StaysAfterDelete": {nil, testStaysAfterDelete},
			} {
				t.Run(what, func(t *testing.T) {
					p := objects.StartProxy(t, server)
					h.test(t, p, checked(t, withPrefix(server.URL(p.Addr), what), h.change))
				})
			}
		})
	}
}

// overS3 is a proxy and a store for what does not depend on the cloud.
func overS3(t *testing.T, change func(*cold.Config)) (*objects.Proxy, *cold.Store) {
	t.Helper()
	server := objects.StartS3(t)
	server.SetEnv(t)
	p := objects.StartProxy(t, server)
	return p, checked(t, server.URL(p.Addr), change)
}

func checked(t *testing.T, url string, change func(*cold.Config)) *cold.Store {
	t.Helper()
	s := open(t, url, func(c *cold.Config) {
		c.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
		if change != nil {
			change(c)
		}
	})
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func attempts(err error) int {
	if e, ok := errors.AsType[*cold.Error](err); ok {
		return e.Attempts
	}
	return 0
}

// The answer to a write is lost, or is another one than what happened: the next try finds what is there to be its own.
func testLostAnswer(t *testing.T, p *objects.Proxy, s *cold.Store) {
	for name, test := range map[string]struct {
		status, writes int
	}{"lost": {0, 1}, "untrue": {500, 2}} {
		writes := func() int { return p.Count("PUT", "") + p.Count("POST", "") }
		before := writes()
		remove := p.Add(objects.Fault{Match: isWrite, Lost: true, Status: test.status, Code: "InternalError", Times: 1})
		put(t, s, "answer/"+name, []byte("once"))
		if n := writes() - before; n != test.writes {
			t.Errorf("%s: %d writes, want %d: after no answer at all it looks before it sends again", name, n, test.writes)
		}
		remove()
	}
}

func isWrite(r *http.Request) bool { return r.Method == "PUT" || r.Method == "POST" }

// A broker dies right after its write came through; the next one, with the same bytes under the same key, goes on.
func testWriterDies(t *testing.T, p *objects.Proxy, s *cold.Store) {
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	p.Add(objects.Fault{Match: isWrite, Lost: true, Times: 1,
		Answered: func(*http.Request, int) { kill() }})
	_, err := s.Put(ctx, "killed", cold.Bytes([]byte("bytes")))
	wantCause(t, err, cold.Canceled)
	put(t, s, "killed", []byte("bytes"))
	_, err = s.Put(t.Context(), "killed", cold.Bytes([]byte("other")))
	wantCause(t, err, cold.Exists)
}

// busy is the word of a store's cloud for "fewer requests, please".
func busy(s *cold.Store) string {
	if strings.HasPrefix(s.String(), "azblob") {
		return "ServerBusy"
	}
	return "SlowDown"
}

// Half of all requests are throttled: everything works, and the store is asked about twice as often.
func testHalfThrottled(t *testing.T, p *objects.Proxy, s *cold.Store) {
	before := len(p.Seen())
	p.Add(objects.Fault{Share: 0.5, Status: 503, Code: busy(s)})
	const n = 20
	for i := range n {
		key := fmt.Sprintf("slow/%d", i)
		put(t, s, key, randomBytes(uint64(i), 1000))
		if !bytes.Equal(content(t, s, key), randomBytes(uint64(i), 1000)) {
			t.Fatal("other bytes came back")
		}
	}
	if got := list(t, s, "slow/", 1); len(got) != n {
		t.Errorf("%d listed", len(got))
	}
	for i := range n {
		if err := s.Delete(t.Context(), fmt.Sprintf("slow/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if used := len(p.Seen()) - before; used > 3*5*n {
		t.Errorf("%d requests for %d objects", used, n)
	}
}

// A throttled store says so in the end, and is asked no more than the attempts allow.
func testThrottledForGood(t *testing.T, p *objects.Proxy, s *cold.Store) {
	p.Add(objects.Fault{Status: 503, Code: busy(s)})
	_, err := s.Put(t.Context(), "k", cold.Bytes([]byte("x")))
	wantCause(t, err, cold.Throttled)
	if attempts(err) != 3 {
		t.Errorf("%d attempts", attempts(err))
	}
	for _, part := range []string{"put", "k", "throttled"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

// A refusal is a refusal: never "not found", and never a deletion that succeeded.
func testDenied(t *testing.T, p *objects.Proxy, s *cold.Store) {
	put(t, s, "mine", []byte("x"))
	remove := p.Add(objects.Fault{Status: 403, Code: "AccessDenied"})
	_, err := s.Put(t.Context(), "other", cold.Bytes([]byte("x")))
	wantCause(t, err, cold.Denied)
	if attempts(err) != 2 {
		t.Errorf("%d attempts, want one more with the credentials read again", attempts(err))
	}
	_, err = s.Stat(t.Context(), "mine")
	wantCause(t, err, cold.Denied)
	wantCause(t, s.ReadAt(t.Context(), "mine", make([]byte, 1), 0), cold.Denied)
	wantCause(t, s.Delete(t.Context(), "mine"), cold.Denied)
	_, err = s.List(t.Context(), "", nil)
	wantCause(t, err, cold.Denied)
	remove()
	if string(content(t, s, "mine")) != "x" {
		t.Error("a deletion that was refused has happened")
	}
}

// Nobody listens: unavailable, and never "not found", which gocloud makes of a host that is not found.
func testNobodyThere(t *testing.T, server *objects.Server) {
	s := open(t, server.URL("127.0.0.1:1"), func(c *cold.Config) {
		c.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	})
	wantCause(t, s.Check(t.Context()), cold.Unavailable)
	wantCause(t, s.Delete(t.Context(), "k"), cold.Unavailable)
	_, err := s.Stat(t.Context(), "k")
	wantCause(t, err, cold.Unavailable)
}

func testMissingBucket(t *testing.T, server *objects.Server) {
	s := open(t, strings.Replace(server.URL(server.Addr), "://bucket?", "://nowhere?", 1), nil)
	err := s.Check(t.Context())
	wantCause(t, err, cold.NoBucket)
	if !strings.Contains(err.Error(), "://nowhere") || !strings.Contains(err.Error(), "write") {
		t.Errorf("%q names neither store nor step", err)
	}
	_, err = s.List(t.Context(), "", nil)
	wantCause(t, err, cold.NoBucket)
}

// The store says that it has deleted, and has not: the self-test sees it.
func testStaysAfterDelete(t *testing.T, p *objects.Proxy, s *cold.Store) {
	p.Add(objects.Fault{Match: objects.On("DELETE", "check"), Status: 202})
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Fatalf("the self-test says %v", err)
	}
}

// One upload is answered by silence: all others pass beside it, and it comes through by itself on another connection.
func testHangingUpload(t *testing.T, p *objects.Proxy, s *cold.Store) {
	hangs := func(r *http.Request) bool { return isWrite(r) && strings.Contains(r.URL.String(), "hanging") }
	p.Add(objects.Fault{Match: hangs, Silent: true, Times: 1})
	var wg sync.WaitGroup
	began := time.Now()
	wg.Go(func() {
		_, err := s.Put(t.Context(), "hanging", cold.Bytes(randomBytes(1, 200_000)))
		if err != nil {
			t.Error(err)
		}
	})
	for i := range 20 {
		put(t, s, fmt.Sprintf("beside/%d", i), randomBytes(2, 10_000))
		if i == 0 && time.Since(began) > 500*time.Millisecond {
			t.Error("the first one beside it took as long")
		}
	}
	wg.Wait()
	if took := time.Since(began); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("the hanging one took %v: the fault did not bite, or was not given up", took)
	}
}

// A read that breaks off or falls silent in the middle goes on where it was.
func TestBrokenReadGoesOn(t *testing.T) {
	for name, fault := range map[string]objects.Fault{"broken": {LostAfter: 300_000}, "silent": {Mute: 300_000}} {
		t.Run(name, func(t *testing.T) {
			p, s := overS3(t, func(c *cold.Config) { c.Attempt = 500 * time.Millisecond })
			data := randomBytes(5, 1<<20)
			put(t, s, "long", data)
			var mu sync.Mutex
			var ranges []string
			fault.Match = func(r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if r.Method == "GET" {
					ranges = append(ranges, r.Header.Get("Range"))
				}
				return r.Method == "GET"
			}
			fault.Times = 2
			p.Add(fault)
			got := make([]byte, 900_000)
			if err := s.ReadAt(t.Context(), "long", got, 100_000); err != nil || !bytes.Equal(got, data[100_000:1_000_000]) {
				t.Fatal(err)
			}
			if len(ranges) != 3 || ranges[0] != "bytes=100000-999999" || ranges[1] == ranges[0] || !strings.HasSuffix(ranges[2], "-999999") {
				t.Errorf("asked for %q", ranges)
			}
		})
	}
}

// Reads that hang leave their caller within its own time, whatever the store's patience is.
func TestCallEndsBeforeItsDeadline(t *testing.T) {
	p, s := overS3(t, nil)
	put(t, s, "k", []byte("x"))
	p.Add(objects.Fault{Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := s.ReadAt(ctx, "k", make([]byte, 1), 0)
	wantCause(t, err, cold.TimedOut)
	if ctx.Err() != nil {
		t.Error("the call took its caller's last moment")
	}
	if attempts(err) < 2 {
		t.Errorf("%d attempts: the first one used up the time of all", attempts(err))
	}
}

// Bytes that were hurt on their way, where the request does not sign them, are found out before anybody relies on them.
func testHurtBytes(t *testing.T, p *objects.Proxy, s *cold.Store) {
	hurt := func(body []byte) []byte { return bytes.Replace(body, []byte("MARK"), []byte("mark"), 1) }
	p.Add(objects.Fault{Match: isWrite, Change: hurt})
	data := append(randomBytes(9, 5000), "MARK"...)
	_, err := s.Put(t.Context(), "hurt", cold.Bytes(data))
	if strings.HasPrefix(s.String(), "s3") {
		wantCause(t, err, cold.Unavailable) // the server found out: each try was hurt
		return
	}
	wantCause(t, err, cold.Corrupt)
}

// The budget of the design: one request for an object of any size, one for a range.
func testRequests(t *testing.T, p *objects.Proxy, s *cold.Store) {
	data := bytes.Repeat(randomBytes(4, 100_000), 180/slower)
	before := len(p.Seen())
	put(t, s, "one", data)
	if seen := p.Seen()[before:]; len(seen) != 1 {
		t.Errorf("it was written by %+v", seen)
	}
	before = len(p.Seen())
	got := make([]byte, len(data)/2)
	if err := s.ReadAt(t.Context(), "one", got, 5000); err != nil || !bytes.Equal(got, data[5000:5000+len(got)]) {
		t.Fatal(err)
	}
	if seen := p.Seen()[before:]; len(seen) != 1 {
		t.Errorf("half of it was read by %+v", seen)
	}
}

// A store that takes conditions and does not apply them is named, and so is one that refuses them. One broker alone goes on.
func TestStoresWithoutConditions(t *testing.T) {
	t.Run("ignored", func(t *testing.T) {
		server := objects.StartGCS(t)
		p := objects.StartProxy(t, server)
		p.Add(objects.Fault{Match: func(r *http.Request) bool {
			q := r.URL.Query()
			q.Del("ifGenerationMatch")
			r.URL.RawQuery = q.Encode()
			return false
		}})
		withoutConditions(t, open(t, server.URL(p.Addr), nil))
	})
	t.Run("refused", func(t *testing.T) {
		server := objects.StartS3(t)
		server.SetEnv(t)
		p := objects.StartProxy(t, server)
		p.Add(objects.Fault{Match: func(r *http.Request) bool { return r.Header.Get("If-None-Match") != "" }, Status: 501, Code: "NotImplemented"})
		withoutConditions(t, open(t, server.URL(p.Addr), nil))
	})
}

func withoutConditions(t *testing.T, s *cold.Store) {
	t.Helper()
	err := s.Check(t.Context())
	if !errors.Is(err, cold.ErrConditions) || !strings.Contains(err.Error(), "://bucket") {
		t.Fatalf("the self-test says %v", err)
	}
	put(t, s, "alone", []byte("x"))
	put(t, s, "alone", []byte("x"))
	_, err = s.Put(t.Context(), "alone", cold.Bytes([]byte("y")))
	wantCause(t, err, cold.Exists)
}
