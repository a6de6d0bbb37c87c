//go:build !nogcs

package drivers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const (
	gcsScope     = "https://www.googleapis.com/auth/devstorage.read_write"
	tokenTimeout = 10 * time.Second
)

// gcsSource makes tokens of the credentials that lie there now: the SDK reads their file once.
type gcsSource struct {
	client *http.Client
	watch  watch

	mu    sync.Mutex
	inner oauth2.TokenSource // of the credentials last read
	token *oauth2.Token      // of inner
}

func newGCSSource(client *http.Client) *gcsSource {
	return &gcsSource{client: client, watch: watch{env: []string{"GOOGLE_APPLICATION_CREDENTIALS"}, files: gcsFiles, now: time.Now}}
}

func gcsFiles() []string {
	if path := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); path != "" {
		return []string{path}
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil
	}
	return []string{filepath.Join(dir, "gcloud", "application_default_credentials.json")}
}

// sign is a transport that gives each request a token. That of the oauth2 package waits for one without regard to the
// request's context.
func (s *gcsSource) sign(base http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		token, err := s.get(r.Context())
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // nothing was read of it
			}
			return nil, fmt.Errorf("%w: %w", errCredentials, err)
		}
		with := r.Clone(r.Context())
		token.SetAuthHeader(with)
		return base.RoundTrip(with)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip is http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// get returns the token in hand, or waits for another for as long as ctx lives.
func (s *gcsSource) get(ctx context.Context) (*oauth2.Token, error) {
	s.mu.Lock()
	if s.watch.changed() {
		s.inner, s.token = nil, nil
	}
	token, inner := s.token, s.inner
	s.mu.Unlock()
	if token.Valid() {
		return token, nil
	}
	type result struct {
		inner oauth2.TokenSource
		token *oauth2.Token
		err   error
	}
	done := make(chan result, 1)
	go func() { // returns within tokenTimeout
		inner, token, err := s.fetch(inner)
		done <- result{inner, token, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inner, s.token = r.inner, r.token
		return r.token, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *gcsSource) fetch(inner oauth2.TokenSource) (oauth2.TokenSource, *oauth2.Token, error) {
	if inner == nil {
		bounded := &http.Client{Transport: s.client.Transport, Timeout: tokenTimeout}
		ctx := context.WithValue(context.Background(), oauth2.HTTPClient, bounded)
		found, err := google.FindDefaultCredentials(ctx, gcsScope)
		if err != nil {
			return nil, nil, err
		}
		inner = found.TokenSource
	}
	token, err := inner.Token()
	return inner, token, err
}
