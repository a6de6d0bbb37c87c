package drivers

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/storage/cold"
)

// A connection is given up when nothing passes for its time; a slow upload, during which nothing is read, is not.
func TestSilentConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = errors.Join(ours.Close(), theirs.Close()) }() // a pipe
		c := &listened{Conn: ours, silence: time.Second}
		read := make(chan error, 1)
		began := time.Now()
		go func() { // returns when the connection is given up
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		tick := time.NewTicker(900 * time.Millisecond)
		defer tick.Stop()
		for range 5 {
			<-tick.C
			go func() { _, _ = theirs.Read(make([]byte, 10)) }() // returns with the write beside it
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ends with %v", err)
		}
		if took := time.Since(began); took != 5500*time.Millisecond {
			t.Errorf("it was given up after %v, want a second after the last write", took)
		}
		if _, err := c.Write([]byte("nobody reads")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write that nobody takes ends with %v", err)
		}
	})
}

// What signs a request is not shown to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s came, with %v", r.URL, r.Header)
	}))
	defer elsewhere.Close()
	origin := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer origin.Close()
	counted := 0
	client := newClient(cold.Hooks{Request: func(string) { counted++ }})
	defer client.CloseIdleConnections()
	res, err := client.Get(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusTemporaryRedirect || counted != 1 {
		t.Errorf("status %d, %d requests, %v", res.StatusCode, counted, err)
	}
}

func TestAnswersOfCloudStorage(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"no object":      {&gcsError{404, "notFound", "No such object: my-bucket/topics/x"}, 404, "notFound"},
		"no bucket":      {&gcsError{404, "notFound", "The specified bucket does not exist."}, 404, "NoSuchBucket"},
		"refused":        {&gcsError{412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold."}, 412, "conditionNotMet"},
		"no credentials": {errCredentials, 0, noCredentials},
		"no answer":      {errors.New("dial"), 0, ""},
	} {
		if status, code := gcsAnswer(test.err); status != test.status || code != test.code {
			t.Errorf("%s: %d %q", name, status, code)
		}
	}
}

func TestWatchLooksOnceASecondAndWhenRefused(t *testing.T) {
	now := time.Unix(1000, 0)
	file := t.TempDir() + "/key"
	w := &watch{env: []string{"DANUBE_TEST_WATCHED"}, files: func() []string { return []string{file} }, now: func() time.Time { return now }}
	step := func(what string, want bool) {
		t.Helper()
		if got := w.changed(); got != want {
			t.Errorf("%s: changed is %t", what, got)
		}
	}
	step("first", true)
	step("again", false)
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("before a second is over", false)
	now = now.Add(lookAgain)
	step("after a second", true)
	t.Setenv("DANUBE_TEST_WATCHED", "x")
	now = now.Add(lookAgain)
	step("environment", true)
	now = now.Add(lookAgain)
	step("nothing new", false)
	w.renew()
	step("refused", true)
	step("then again", false)
	now = now.Add(-time.Hour)
	step("a clock that is put back", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookAgain)
	step("the file is gone", true)
}
