package objects

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what happens to the requests it matches. Zero fields do nothing. The
// first of several faults that match a request is the one that happens.
type Fault struct {
	// Match picks requests; nil picks all. See [On].
	Match func(*http.Request) bool
	// Skip lets so many requests pass that match; Times then hits so many, 0 all.
	Skip, Times int
	// Share is the part of them that is hit, drawn by a seed; 0 is all.
	Share float64

	// Status and Code are an answer in place of the server's: 503 and SlowDown,
	// 403 and ExpiredToken. The server never sees the request, unless it is Lost.
	Status int
	Code   string
	// Delay is a wait before the request goes to the server.
	Delay time.Duration
	// Silent takes the whole request and never answers, without closing anything.
	// The server never sees it.
	Silent bool
	// Lost has the server carry the request out, and the connection closed, or
	// Status said, in place of its answer.
	Lost bool
	// LostAfter closes the connection after so many bytes of the answer's body.
	LostAfter int64
	// Mute passes so many bytes of the answer's body on and then falls silent.
	Mute int64
	// BytesPerSecond is how fast the answer's body passes; with Together, all answers
	// that the fault hits.
	BytesPerSecond int64
	Together       bool
	// Target is the address of another server that gets the request.
	Target string
	// Change makes other bytes of the request's body.
	Change func(body []byte) []byte
	// Answered is called when the server has answered, before the client hears of
	// it: to kill the client right after its PUT returned 200, for instance.
	Answered func(r *http.Request, status int)

	lane *lane // for all of them together
}

// On matches a method ("" for any) and a part of the path.
func On(method, part string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return (method == "" || r.Method == method) && strings.Contains(r.URL.Path, part)
	}
}

// Seen is a request that came to a proxy.
type Seen struct {
	Method, Path string
	Bytes        int64 // the length of its body as announced
	Status       int   // of the answer, 0 for none
}

// Proxy stands before a server and hurts what passes. It is safe for concurrent
// use.
type Proxy struct {
	Addr   string // host:port for clients
	target string
	kind   string
	server *http.Server
	client *http.Transport
	ctx    context.Context // ends with the proxy; a silent answer has nothing else to wait for
	end    context.CancelFunc

	mu     sync.Mutex
	rnd    *rand.Rand
	faults []*counted
	seen   []Seen
}

type counted struct {
	Fault
	matched, hit int
}

// lane is a way of a limited speed.
type lane struct {
	rate int64
	mu   sync.Mutex
	free time.Time // when it has passed what was given to it
}

// enter is how long n bytes take from now on, behind those that are under way.
func (l *lane) enter(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	return time.Until(l.free)
}

// StartProxy starts a proxy before a server. It ends with the test.
func StartProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	p := &Proxy{Addr: l.Addr().String(), target: s.Addr, kind: s.kind, client: &http.Transport{DisableCompression: true}, ctx: ctx, end: end, rnd: rand.New(rand.NewPCG(1, 1))}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.server.Serve(l) }) // returns when the server is closed
	t.Cleanup(func() {
		p.end()
		_ = p.server.Close() // cuts what is open, which is what is wanted
		wg.Wait()
		p.client.CloseIdleConnections()
	})
	return p
}

// Add puts a fault behind those that are there and returns what takes it away.
func (p *Proxy) Add(f Fault) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &counted{Fault: f}
	if f.Together {
		c.lane = &lane{rate: f.BytesPerSecond}
	}
	p.faults = append(p.faults, c)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, other := range p.faults {
			if other == c {
				p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
				return
			}
		}
	}
}

// Seen lists the requests so far, those that were hurt included.
func (p *Proxy) Seen() []Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Seen(nil), p.seen...)
}

// Count is the number of requests so far with this method ("" for any) and this part of the path.
func (p *Proxy) Count(method, part string) int {
	n := 0
	for _, s := range p.Seen() {
		if (method == "" || s.Method == method) && strings.Contains(s.Path, part) {
			n++
		}
	}
	return n
}

func (p *Proxy) pick(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Match != nil && !f.Match(r) {
			continue
		}
		f.matched++
		if f.matched <= f.Skip || f.Times > 0 && f.hit == f.Times || f.Share > 0 && p.rnd.Float64() >= f.Share {
			continue
		}
		f.hit++
		return f.Fault
	}
	return Fault{}
}

func (p *Proxy) note(r *http.Request, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, Seen{Method: r.Method, Path: r.URL.Path, Bytes: r.ContentLength, Status: status})
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	f := p.pick(r)
	if f.Delay > 0 && !p.pause(r, f.Delay) {
		p.note(r, 0)
		return
	}
	switch {
	case f.Status > 0 && !f.Lost:
		p.note(r, f.Status)
		p.refuse(w, r, f)
		return
	case f.Silent:
		p.note(r, 0)
		_, _ = io.Copy(io.Discard, r.Body) // all of it, as a server that then hangs would
		select {
		case <-r.Context().Done():
		case <-p.ctx.Done():
		}
		return
	}
	p.forward(w, r, f)
}

// pause waits unless the client or the proxy ends.
func (p *Proxy) pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-p.ctx.Done():
	}
	return false
}

// refuse answers in the words of the store that the proxy stands for.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, f Fault) {
	_, _ = io.Copy(io.Discard, r.Body) // a client that still sends would take the answer for a broken connection
	switch {
	case f.Status < 300:
		w.WriteHeader(f.Status)
	case p.kind == "gs":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":"hurt","errors":[{"reason":%q,"message":"hurt"}]}}`, f.Status, f.Code)
	default:
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("x-ms-error-code", f.Code)
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>hurt</Message></Error>`, f.Code)
	}
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, f Fault) {
	res, err := p.ask(r, f)
	if err != nil {
		p.note(r, 0)
		panic(http.ErrAbortHandler) // closes the connection, which is what a server that is away does
	}
	defer func() { _ = res.Body.Close() }() // read as far as anybody wanted
	p.note(r, res.StatusCode)
	if f.Answered != nil {
		f.Answered(r, res.StatusCode)
	}
	if f.Lost && f.Status > 0 {
		p.refuse(w, r, f)
		return
	}
	if f.Lost {
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	p.answer(w, r, res.Body, f)
}

func (p *Proxy) ask(r *http.Request, f Fault) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", p.target, ""
	if f.Target != "" {
		out.URL.Host = f.Target
	}
	if f.Change != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = f.Change(body)
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	if out.ContentLength == 0 {
		out.Body = http.NoBody
	}
	return p.client.RoundTrip(out)
}

// answer passes the body on, as far and as fast as the fault lets it.
func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, body io.Reader, f Fault) {
	limit := max(f.LostAfter, f.Mute)
	if limit > 0 {
		body = io.LimitReader(body, limit)
	}
	if f.BytesPerSecond > 0 {
		if f.lane == nil {
			f.lane = &lane{rate: f.BytesPerSecond}
		}
		body = &slow{p: p, r: r, from: body, lane: f.lane}
	}
	n, err := io.Copy(w, body)
	switch {
	case err != nil || f.LostAfter > 0 && n == limit:
		panic(http.ErrAbortHandler)
	case f.Mute > 0 && n == limit:
		_ = http.NewResponseController(w).Flush() // what it can do, it did
		select {
		case <-r.Context().Done():
		case <-p.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	}
}

// slow reads no faster than its lane.
type slow struct {
	p    *Proxy
	r    *http.Request
	from io.Reader
	lane *lane
}

// Read is io.Reader.
func (s *slow) Read(b []byte) (int, error) {
	n, err := s.from.Read(b[:min(len(b), 32<<10)])
	const nap = time.Millisecond // what is shorter is waited for with what follows
	if wait := s.lane.enter(n); wait > nap && !s.p.pause(s.r, wait) {
		return n, context.Canceled
	}
	return n, err
}
