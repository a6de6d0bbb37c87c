package drivers

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/danubemq/danube/storage/cold"
)

const (
	dialTimeout = 5 * time.Second
	keepIdle    = 30 * time.Second
)

// newClient is the one HTTP client of a bucket. It speaks HTTP/1.1 and opens as many connections as there are requests:
// none waits for another.
func newClient(hooks cold.Hooks) *http.Client {
	idle := keepIdle
	if hooks.Silence > 0 {
		idle = min(idle, hooks.Silence/2) // a connection at rest is closed, never given up under a request that takes it
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil || hooks.Silence <= 0 {
				return c, err
			}
			return &listened{Conn: c, silence: hooks.Silence}, nil
		},
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       idle,
		Protocols:             protocols,
		DisableCompression:    true, // a body is what lies in the bucket, byte for byte
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
	}
	return withoutRedirects(&counted{base: transport, request: hooks.Request})
}

// withoutRedirects is a client that follows no redirect: what signs a request is for the host it was made for.
func withoutRedirects(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// listened is a connection that is given up when nothing passes over it, in either direction, for a while. So a
// request that hangs is found out after the same time whether it carries a kilobyte or a gigabyte.
type listened struct {
	net.Conn
	silence time.Duration
}

// Read waits no longer than the silence; each Write begins it anew.
func (c *listened) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write waits no longer than the silence for each piece, and puts off the end of a Read that waits beside it.
func (c *listened) Write(p []byte) (int, error) {
	const piece = 64 << 10 // slow but alive: each piece may take its time
	done := 0
	for first := true; first || done < len(p); first = false {
		if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
			return done, err
		}
		n, err := c.Conn.Write(p[done:min(len(p), done+piece)])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// counted tells the hook of every request that goes out: what a bill counts.
type counted struct {
	base    *http.Transport
	request func(method string) // nil: nobody asks
}

// RoundTrip is http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.request != nil {
		c.request(r.Method)
	}
	return c.base.RoundTrip(r)
}

// CloseIdleConnections is what http.Client looks for.
func (c *counted) CloseIdleConnections() { c.base.CloseIdleConnections() }
