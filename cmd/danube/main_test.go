package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/cmd/danube/fail"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// shell is an app with its streams in memory.
type shell struct {
	*app
	out, err bytes.Buffer
}

func newShell(env ...string) *shell {
	s := &shell{}
	s.app = &app{in: strings.NewReader(""), out: &s.out, err: &s.err, env: env, now: noon}
	return s
}

// call runs one command line and returns its exit code.
func (s *shell) call(t testing.TB, args ...string) int {
	t.Helper()
	return s.run(t.Context(), args)
}

// golden compares text with a file below testdata, or rewrites that.
func golden(t testing.TB, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update rewrites it when the change is meant\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// interrupted is a context that a signal ended.
func interrupted(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fail.ErrInterrupted)
	return ctx
}
