package integration

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danubemq/danube/client"
)

// clear wants what every refusal has to be: the exit code, one line that says what and why, in it the words, and no
// trace of the program's insides.
func (r result) clear(t testing.TB, code int, words ...string) {
	t.Helper()
	line := strings.Join(r.args, " ")
	if r.code != code {
		t.Errorf("%s: exit code %d, want %d: %s", line, r.code, code, r.stderr)
	}
	if n := strings.Count(r.stderr, "danube: "); n != 1 {
		t.Errorf("%s: %d lines say what is wrong:\n%s", line, n, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%s: lacks %q:\n%s", line, w, r.stderr)
		}
	}
	for _, inside := range []string{"goroutine ", "panic", "0x", "EOF", "failed to"} {
		if strings.Contains(r.stderr, inside) {
			t.Errorf("%s: says %q:\n%s", line, inside, r.stderr)
		}
	}
}

// TestBadInputToCommands is a table of what people get wrong, each against a broker that has a topic. Nothing is lost by
// any of it.
func TestBadInputToCommands(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("there"), 0, 10, 100)
	b.must(nil, "subscription", "create", "there", "s", "--type", "shared")
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no segment\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		line  string
		code  int
		words []string
	}{
		"unknown command":     {"prodcue there", 2, []string{"produce"}},
		"unknown flag":        {"produce there --fiel x", 2, []string{"--file"}},
		"argument missing":    {"produce", 2, []string{"TOPIC"}},
		"bad topic name":      {"topic create a/b/c", 2, []string{"a/b/c"}},
		"bad character":       {"produce ord€rs x", 2, []string{"letters, digits"}},
		"name too long":       {"topic create " + strings.Repeat("x", 256), 2, []string{"255"}},
		"bad partition":       {"consume there:x", 2, []string{"there:x"}},
		"no such partition":   {"consume there:7 --from earliest", 1, []string{"1 partition"}},
		"no such topic":       {"consume nowhere", 1, []string{"/default/nowhere does not exist", "topic create /default/nowhere"}},
		"describe nothing":    {"topic describe nowhere", 1, []string{"does not exist"}},
		"other settings":      {"topic create there --partitions 3", 1, []string{"exists with other settings"}},
		"no write buffer":     {"topic create w --durability warm", 1, []string{"not in this version", "local"}},
		"no bucket":           {"topic create o --durability object", 1, []string{"needs a cold tier", "storage.durable.url"}},
		"unknown durability":  {"topic create o --durability disk", 2, []string{"local"}},
		"no such file":        {"produce there --file " + dir + "/none", 1, []string{dir + "/none", "no such file"}},
		"a folder for a file": {"produce there --file " + dir, 1, []string{dir, "is a directory"}},
		"too large":           {"produce there --count 1 --size 20MiB", 2, []string{"10MiB"}},
		"bad number":          {"produce there x --count many", 2, []string{"--count many"}},
		"bad position":        {"consume there --from yesterday", 2, []string{"yesterday"}},
		"offset beyond":       {"consume there --from 500", 1, []string{"offset 500", "next offset is 10"}},
		"wrong type":          {"consume there -s s --type exclusive", 1, []string{"shared"}},
		"type of later":       {"consume there -s f --type failover", 1, []string{"failover are not in this version"}},
		"no subscription":     {"subscription describe there none", 1, []string{"none"}},
		"not confirmed":       {"topic delete there", 2, []string{"--yes"}},
		"timed out":           {"consume there --from latest --count 1 --timeout 200ms", 3, []string{"0 of 1"}},
		"timed out in a sub":  {"consume there -s s2 --count 1 --timeout 200ms", 3, []string{"0 of 1"}},
		"no segment":          {"segment verify " + text, 1, []string{text}},
		"no log":              {"wal verify " + dir, 1, []string{dir}},
		"no address":          {"topic list --broker host:port:more", 2, []string{"--broker"}},
	} {
		t.Run(name, func(t *testing.T) {
			b.run(nil, strings.Split(c.line, " ")...).clear(t, c.code, c.words...)
		})
	}
	b.holds("there", 10, 100)
	if list := string(b.must(nil, "topic", "list", "-o", "json").stdout); strings.Count(list, `"topic":`) != 1 {
		t.Errorf("a refused command left something behind: %s", list)
	}
}

// TestBadInputClosedPipe: whoever reads the output goes away, which is no error but with an open --count.
func TestBadInputClosedPipe(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	b.must(nil, "produce", "t", "--count", "20000", "--size", "1KiB")
	for args, want := range map[string]string{"": "0", "--count 30000 --timeout 30s": "1"} {
		line := fmt.Sprintf("%s consume t --from earliest -o raw %s | head -1 >/dev/null; echo ${PIPESTATUS[0]}", b.program, args)
		cmd := exec.Command("bash", "-c", line)
		cmd.Env = append(b.environ(), "DANUBE_BROKER="+b.clients())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), want) {
			t.Errorf("consume %s into a closed pipe: %q, %v, want exit code %s", args, out, err, want)
		}
	}
	// What was not written was not acknowledged: every message comes to somebody.
	half := b.must(nil, "consume", "t", "-s", "s", "--from", "earliest", "--count", "7", "-o", "raw").stdout
	others := b.must(nil, "consume", "t", "-s", "s", "--count", "19993", "-o", "raw").stdout
	if n := strings.Count(string(half)+string(others), "\n"); n != 20000 {
		t.Errorf("two consumers in turn got %d lines", n)
	}
}

// refusal runs `danube standalone args…`, which must end by itself.
func refusal(t testing.TB, env []string, args ...string) result {
	t.Helper()
	b := newBroker(t, "refused", options{env: env})
	return b.run(nil, append([]string{"standalone"}, args...)...)
}

// TestBadInputToStandalone: what is wrong with a configuration or in the way of a start is named, with what to do.
func TestBadInputToStandalone(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	pid := fmt.Sprintf("process %d", b.process.cmd.Process.Pid)
	config := func(text string) []string {
		path := filepath.Join(t.TempDir(), "danube.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--config", path}
	}
	free := func(args ...string) []string {
		return append([]string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--client-port", strconv.Itoa(freePort(t)), "--http-port", strconv.Itoa(freePort(t))}, args...)
	}
	for name, c := range map[string]struct {
		args, env []string
		code      int
		words     []string
	}{
		"unknown key":   {config("storage: {wal: {segment_byte: 1MiB}}\n"), nil, 2, []string{"danube.yaml:1", "storage.wal.segment_byte", "did you mean storage.wal.segment_bytes?"}},
		"no YAML":       {config("storage: [\n"), nil, 2, []string{"danube.yaml"}},
		"no such file":  {[]string{"--config", "/none.yaml"}, nil, 2, []string{"/none.yaml"}},
		"bad value":     {nil, []string{"DANUBE_STORAGE_WAL_SYNC=sometimes"}, 2, []string{"DANUBE_STORAGE_WAL_SYNC", "always"}},
		"typo in env":   {nil, []string{"DANUBE_STORAGE_WAL_SINC=always"}, 2, []string{"DANUBE_STORAGE_WAL_SYNC"}},
		"mode of later": {config("storage: {mode: object_store}\n"), nil, 2, []string{"storage.mode"}},
		"client port":   {free("--client-port", strconv.Itoa(b.client)), nil, 1, []string{strconv.Itoa(b.client), pid, "--client-port"}},
		"http port":     {free("--http-port", strconv.Itoa(b.http)), nil, 1, []string{strconv.Itoa(b.http), pid, "--http-port"}},
		"data in use":   {free("--data-dir", b.dir), nil, 1, []string{b.dir, pid}},
		"no address":    {free("--host", "203.0.113.9"), nil, 1, []string{"203.0.113.9", "--host"}},
		"no folder":     {free("--data-dir", "/proc/none/data"), nil, 1, []string{"/proc/none"}},
	} {
		t.Run(name, func(t *testing.T) { refusal(t, c.env, c.args...).clear(t, c.code, c.words...) })
	}
	b.must(nil, "produce", "t", "the broker beside is unharmed")
}

// TestBadInputNewerFormat writes a newer version into each kind of file: the start refuses, names both versions and
// touches nothing; with the old bytes back it goes on (A81).
func TestBadInputNewerFormat(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("kept"), 0, 10, 100)
	b.kill()
	segment := strings.TrimPrefix(segments(t, b.dir)[0], b.dir+"/")
	for _, file := range []string{storeFile, segment} {
		t.Run(filepath.Ext(file), func(t *testing.T) {
			path := filepath.Join(b.dir, file)
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			head := len(old) // the file store is all head
			if file == segment {
				head = int(binary.LittleEndian.Uint16(old[10:]))
			}
			newer := slices.Clone(old)
			newer[8] = 9
			binary.LittleEndian.PutUint32(newer[head-4:], crc32.Checksum(newer[:head-4], crc32.MakeTable(crc32.Castagnoli)))
			if err := os.WriteFile(path, newer, 0o640); err != nil {
				t.Fatal(err)
			}
			again := newBroker(t, "newer", options{dir: b.dir})
			refuses(t, again, "version 9", "reads up to 1")
			if err := os.WriteFile(path, old, 0o640); err != nil {
				t.Fatal(err)
			}
			again.start()
			again.holds("kept", 10, 100)
			again.kill()
		})
	}
}

// TestBadInputMessageTooLarge: the broker's own limit, through the client: refused for good, what comes before and behind
// is stored.
func TestBadInputMessageTooLarge(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	p := b.produce("t")
	sendEach(t, p, 0, 1, 10)
	_, err := p.Send(t.Context(), client.Message{Payload: make([]byte, 11<<20)})
	if err == nil || !strings.Contains(err.Error(), "at most 10485760") {
		t.Errorf("a message too large: %v", err)
	}
	sendEach(t, p, 1, 1, 10)
	b.holds("t", 2, 10)
	const large = 10<<20 - 100 // the limit is of the encoded message
	b.must(io.LimitReader(zeros{}, large), "produce", "zeros")
	if got := b.must(nil, "consume", "zeros", "--from", "earliest", "--count", "1", "-o", "raw").stdout; len(got) != large+1 {
		t.Errorf("a message of the largest size came back with %d bytes", len(got)-1)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
