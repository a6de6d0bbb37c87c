package objects

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behind is a proxy before a server that answers each request with its body, and 100,000 bytes to a GET.
func behind(t *testing.T) (*Proxy, func(method, path, body string) (int, string, error)) {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(origin.Close)
	p := StartProxy(t, &Server{Addr: strings.TrimPrefix(origin.URL, "http://"), kind: "s3"})
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return p, func(method, path, body string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Addr+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		res, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, string(text), errors.Join(err, res.Body.Close())
	}
}

func TestProxyPasses(t *testing.T) {
	p, ask := behind(t)
	if status, text, err := ask("PUT", "/a/b?c=d", "hello"); status != 200 || text != "hello" || err != nil {
		t.Fatalf("%d %q %v", status, text, err)
	}
	if seen := p.Seen(); len(seen) != 1 || seen[0] != (Seen{Method: "PUT", Path: "/a/b", Bytes: 5, Status: 200}) || p.Count("PUT", "a/") != 1 || p.Count("GET", "") != 0 {
		t.Fatalf("seen %+v", seen)
	}
}

func TestProxyCountsItsFaults(t *testing.T) {
	p, ask := behind(t)
	remove := p.Add(Fault{Match: On("PUT", "/k"), Skip: 1, Times: 2, Status: 503, Code: "SlowDown"})
	var got []int
	for range 7 {
		status, _, err := ask("PUT", "/k", "x")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	if want := []int{200, 503, 503, 200, 200, 200, 200}; !equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	remove()
	p.Add(Fault{Match: On("PUT", ""), Status: 403, Code: "ExpiredToken"})
	if status, text, err := ask("PUT", "/other", ""); status != 403 || !strings.Contains(text, "<Code>ExpiredToken</Code>") || err != nil {
		t.Fatalf("%d %q %v", status, text, err)
	}
	if status, _, err := ask("GET", "/other", ""); status != 200 || err != nil {
		t.Fatalf("another method: %d %v", status, err)
	}
}

func TestProxyHitsAShare(t *testing.T) {
	p, ask := behind(t)
	p.Add(Fault{Share: 0.5, Status: 503})
	hit := 0
	for range 100 {
		status, _, err := ask("PUT", "/k", "x")
		if err != nil {
			t.Fatal(err)
		}
		if status == 503 {
			hit++
		}
	}
	if hit < 30 || hit > 70 {
		t.Errorf("%d of 100", hit)
	}
}

func equal(a, b []int) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestProxyHurtsAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		fault Fault
		got   int // bytes that come through before the error
	}{
		"lost":              {Fault{Lost: true}, 0},
		"lost in the body":  {Fault{LostAfter: 1000}, 1000},
		"silent":            {Fault{Silent: true}, 0},
		"silent half-way":   {Fault{Mute: 50_000}, 50_000},
		"delayed too long":  {Fault{Delay: time.Minute}, 0},
		"slower than wants": {Fault{BytesPerSecond: 1000}, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ask := behind(t)
			p.Add(test.fault)
			_, text, err := ask("GET", "/o", "")
			if err == nil || len(text) > test.got {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
		})
	}
}

func TestProxyTellsBeforeTheClientHears(t *testing.T) {
	p, ask := behind(t)
	heard, told := false, 0
	p.Add(Fault{Match: On("PUT", ""), Answered: func(r *http.Request, status int) {
		if heard || r.URL.Path != "/o" {
			t.Error("told too late")
		}
		told = status
	}, Change: bytes.ToUpper})
	status, text, err := ask("PUT", "/o", "text")
	heard = true
	if status != 200 || told != 200 || text != "TEXT" || err != nil {
		t.Fatalf("%d %d %q %v", status, told, text, err)
	}
}

// What several answers share is as fast for one as for all of them together.
func TestLaneIsShared(t *testing.T) {
	l := &lane{rate: 1 << 20}
	var last time.Duration
	for range 10 {
		last = l.enter(1 << 20)
	}
	if last < 9*time.Second || last > 10*time.Second {
		t.Errorf("ten times what passes in a second takes %v", last)
	}
}
