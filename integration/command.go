package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// runWithin bounds one command of the command line.
const runWithin = 2 * time.Minute

// result is what one command of the command line did.
type result struct {
	args   []string
	stdout []byte
	stderr string
	code   int
}

// run runs `danube args…` against the broker with input as its standard input, nil for none, and waits for its end.
// Any exit code is a result; only a command that cannot run, or does not end, fails the test.
func (b *broker) run(input io.Reader, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), runWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Env = append(b.environ(), "DANUBE_BROKER="+b.clients())
	cmd.SysProcAttr = endWithParent()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		b.t.Fatalf("run danube %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return result{args: args, stdout: stdout.Bytes(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// clients is the address that commands are pointed at, also while the broker is down.
func (b *broker) clients() string {
	switch a := b.address(); {
	case a != "":
		return a
	case b.options.join:
		return b.host + ":6650"
	default:
		return "127.0.0.1:1" // nothing listens there
	}
}

// must is run for a command that has to succeed.
func (b *broker) must(input io.Reader, args ...string) result {
	b.t.Helper()
	r := b.run(input, args...)
	if r.code != 0 {
		b.t.Fatalf("danube %s exited with %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r
}

// command starts `danube args…` and lets it run beside the test; it is ended when the test is over.
func (b *broker) command(input io.Reader, args ...string) *process {
	b.t.Helper()
	cmd := exec.Command(b.program, args...)
	cmd.Env = append(b.environ(), "DANUBE_BROKER="+b.clients())
	cmd.Stdin = input
	return spawn(b.t, args[0], cmd, openLog(b.t, b.name+"-"+args[0]))
}

// parse decodes one JSON document that a command printed.
func parse[T any](t testing.TB, r result) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.stdout, &v); err != nil {
		t.Fatalf("danube %s printed no JSON: %v\n%s", strings.Join(r.args, " "), err, r.stdout)
	}
	return v
}

// parseLines decodes one JSON object a line.
func parseLines[T any](t testing.TB, r result) []T {
	t.Helper()
	var all []T
	for dec := json.NewDecoder(bytes.NewReader(r.stdout)); ; {
		var v T
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("danube %s printed no JSON after %d objects: %v", strings.Join(r.args, " "), len(all), err)
		}
		all = append(all, v)
	}
}
