package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/storage/segment"
)

// TestExitCodesAndErrors runs command lines that need no broker, or find none.
func TestExitCodesAndErrors(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), segment.FormatName(0, 1))
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	closed := closedPort(t)
	for name, c := range map[string]struct {
		args string
		code int
		says []string // on standard error
	}{
		"help":                         {"", fail.Done, nil},
		"version":                      {"version", fail.Done, nil},
		"unknown command":              {"prodcue x", fail.Usage, []string{`danube: unknown command "prodcue"`, "hint: did you mean danube produce?"}},
		"unknown nested command":       {"topic lsit", fail.Usage, []string{`danube: unknown command "topic lsit"`, "did you mean danube topic list?"}},
		"help of no command":           {"help nope", fail.Usage, []string{`danube: unknown command "nope"`, "danube --help lists the commands"}},
		"help of a nested typo":        {"help topic lsit", fail.Usage, []string{`danube: unknown command "topic lsit"`, "did you mean danube topic list?"}},
		"help of a command":            {"help topic list", fail.Done, nil},
		"far from any command":         {"frobnicate", fail.Usage, []string{"danube --help lists the commands"}},
		"group alone":                  {"subscription", fail.Usage, []string{"subscription: a command is missing", "create, delete, describe"}},
		"unknown flag":                 {"topic create t --partitons 3", fail.Usage, []string{"topic create: unknown flag --partitons", "did you mean --partitions?"}},
		"unknown short flag":           {"consume t -z", fail.Usage, []string{"consume: unknown flag -z"}},
		"argument missing":             {"topic describe", fail.Usage, []string{"topic describe: TOPIC is missing"}},
		"argument too many":            {"topic describe a b", fail.Usage, []string{`"b" is one argument too many`}},
		"bad number":                   {"produce t --count -5", fail.Usage, []string{`--count -5: "-5" is no whole number`}},
		"bad size":                     {"produce t --count 1 --size 4kb", fail.Usage, []string{`did you mean 4KiB?`}},
		"bad duration":                 {"consume t --timeout soon", fail.Usage, []string{`"soon" is no duration`}},
		"bad choice":                   {"consume t -o xml", fail.Usage, []string{"is not one of text, json, raw"}},
		"bad position":                 {"consume t --from yesterday", fail.Usage, []string{"--from:", "latest, earliest, an offset"}},
		"bad name":                     {"topic create a/b", fail.Usage, []string{"allowed are letters, digits"}},
		"partition where a topic goes": {"topic delete t:3 --yes", fail.Usage, []string{"t:3 names one partition; the whole topic is /default/t"}},
		"no partition of a range":      {"topic resolve t --lost --range 0-9", fail.Usage, []string{"belong to a partition"}},
		"how to resolve":               {"topic resolve t:0", fail.Usage, []string{"--lost, --accept-gap and --adopt"}},
		"two ways to resolve":          {"topic resolve t:0 --lost --adopt", fail.Usage, []string{"exclude each other"}},
		"truncate before what":         {"topic truncate t", fail.Usage, []string{"--before is missing"}},
		"reset to what":                {"subscription reset t s", fail.Usage, []string{"--to is missing"}},
		"nothing to set":               {"topic set t", fail.Usage, []string{"nothing to change"}},
		"no window":                    {"subscription create t s --max-unacked 0", fail.Usage, []string{"subscription create: --max-unacked 0: must be above 0; the default is 1000"}},
		"no ack timeout":               {"subscription set t s --ack-timeout 0", fail.Usage, []string{"--ack-timeout 0s: must be above 0; the default is 30s"}},
		"a short pause":                {"subscription set t s --backoff 10us", fail.Usage, []string{"--backoff 10µs: must be above 0", "1s"}},
		"no redelivery":                {"subscription set t s --max-redeliveries 0", fail.Usage, []string{"--max-redeliveries 0: must be above 0"}},
		"unknown type":                 {"consume t -s s --type single", fail.Usage, []string{"--type single: is not one of exclusive, shared (failover and key-shared are not in this version)"}},
		"unknown durability":           {"topic create t --durability gold", fail.Usage, []string{"--durability gold: is not one of local, object (warm is not in this version)"}},
		"size without count":           {"produce t --size 1KiB", fail.Usage, []string{"--size needs --count"}},
		"file and count":               {"produce t --file x --count 1", fail.Usage, []string{"exclude each other"}},
		"reader with consumer flags":   {"consume t --no-ack", fail.Usage, []string{"--no-ack needs a subscription: -s NAME"}},
		"durability of what is lost":   {"topic create t --reliable=false --durability local", fail.Usage, []string{"keeps nothing"}},
		"bad property":                 {"produce t m --property k", fail.Usage, []string{"name=value"}},
		"bad address":                  {"--broker :x topic list", fail.Usage, []string{"--broker:"}},
		"no broker":                    {"--broker " + closed + " topic list", fail.Failed, []string{"connect to " + closed + ": connection refused", "hint: `danube standalone` starts a broker"}},
		"no broker to produce to":      {"--broker " + closed + " produce t m", fail.Failed, []string{"connection refused"}},
		"nobody to confirm":            {"topic delete t", fail.Usage, []string{"standard input is no terminal", "--yes"}},
		"no file to produce":           {"produce t --file " + dir + "/none", fail.Failed, []string{"no such file"}},
		"no segment":                   {"segment verify " + dir + "/none.seg", fail.Failed, []string{"verify segment:", "no such file"}},
		"an empty segment":             {"segment verify " + empty, fail.Failed, []string{"problem"}},
		"an empty segment as JSON":     {"segment verify -o json " + empty, fail.Failed, []string{"verify segment " + empty + ": 1 problem"}},
		"dump of an empty segment":     {"segment dump " + empty, fail.Failed, []string{"dump segment " + empty + ": not a segment"}},
		"the same as JSON":             {"segment dump -o json " + empty, fail.Failed, []string{"dump segment " + empty + ": not a segment"}},
		"a log that is not whole":      {"wal verify " + filepath.Dir(log), fail.Failed, []string{"verify log " + filepath.Dir(log) + ": 1 problem"}},
		"the same log as JSON":         {"wal verify -o json " + filepath.Dir(log), fail.Failed, []string{"1 problem"}},
		"a folder as segment":          {"segment dump " + dir, fail.Failed, []string{"is no file"}},
		"no log":                       {"wal verify " + dir, fail.Failed, []string{"holds no segment files"}},
		"log of a file":                {"wal verify " + empty, fail.Failed, []string{"is a file", "danube segment verify"}},
		"no configuration":             {"config check " + dir + "/none", fail.Usage, []string{"no such file"}},
		"unknown shell":                {"completion tcsh", fail.Usage, []string{"bash, zsh, fish, powershell"}},
		"bench too small":              {"bench produce t --size 8", fail.Usage, []string{"--size 8: is not between"}},
		"bench two ends":               {"bench produce t --count 1 --duration 1s", fail.Usage, []string{"exclude each other"}},
		"bench without rate":           {"bench latency t --rate 0", fail.Usage, []string{"--rate 0"}},
		"bench many exclusive":         {"bench consume t --consumers 2", fail.Usage, []string{"--type shared has many"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell()
			code := s.call(t, strings.Fields(c.args)...)
			text := s.err.String()
			if code != c.code {
				t.Errorf("danube %s: exit code %d, want %d\n%s", c.args, code, c.code, text)
			}
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("danube %s says\n%swithout %q", c.args, text, want)
				}
			}
			if strings.Contains(text, "Usage:") {
				t.Errorf("danube %s prints the usage for an error:\n%s", c.args, text)
			}
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "danube: ") && !strings.HasPrefix(line, "  ") {
					t.Errorf("danube %s: line without its form: %q", c.args, line)
				}
			}
		})
	}
}

// TestHelpTellsWhatIsThere: what brokers of this version refuse is not offered, and a default is shown.
func TestHelpTellsWhatIsThere(t *testing.T) {
	for command, want := range map[string]string{
		"consume":             "--type exclusive|shared ",
		"bench consume":       "(failover and key-shared are not in this version)",
		"topic set":           "--durability local|object ",
		"produce":             "(warm is not in this version)",
		"subscription create": "for so long (default 30s)",
	} {
		s := newShell()
		if code := s.call(t, append(strings.Fields(command), "--help")...); code != fail.Done || !strings.Contains(s.out.String(), want) {
			t.Errorf("danube %s --help: exit code %d, lacks %q:\n%s", command, code, want, s.out.String())
		}
	}
}

// closedPort is a loopback address where nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestCompletionScripts(t *testing.T) {
	for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
		s := newShell()
		if code := s.call(t, "completion", sh); code != fail.Done || !strings.Contains(s.out.String(), "danube") {
			t.Errorf("completion %s: exit code %d, %d bytes", sh, code, s.out.Len())
		}
	}
}

func TestBrokerAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		flag, env, want string
	}{
		"default":            {"", "", "127.0.0.1:6650"},
		"environment":        {"", "10.0.0.1:7000", "10.0.0.1:7000"},
		"flag wins":          {"10.0.0.2:7000", "10.0.0.1:7000", "10.0.0.2:7000"},
		"list":               {"a:1, b:2,c", "", "a:1 b:2 c:6650"},
		"port is completed":  {"broker", "", "broker:6650"},
		"IPv6 without port":  {"[::1]", "", "[::1]:6650"},
		"IPv6 with port":     {"[::1]:7000", "", "[::1]:7000"},
		"empty entries pass": {"a:1,,", "", "a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell("DANUBE_BROKER=" + c.env)
			s.brokers = c.flag
			got, err := s.addresses()
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
