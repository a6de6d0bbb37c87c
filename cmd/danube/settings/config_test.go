package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// writeConfig writes a configuration file and returns its name.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "danube.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConfigProblems: every problem is named with its place.
func TestConfigProblems(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		says []string // of each problem, in order; none: valid
	}{
		"empty":                {"", nil},
		"comment only":         {"# nothing\n", nil},
		"valid":                {"data_dir: /d\nstorage:\n  wal: {sync: interval, sync_interval: 50ms}\n", nil},
		"all of the page":      {wholeConfig, nil},
		"section left empty":   {"storage:\n", nil},
		"typing error":         {"storage:\n  wal:\n    segment_byte: 64MiB\n", []string{"danube.yaml:3: unknown key storage.wal.segment_byte; did you mean storage.wal.segment_bytes?"}},
		"typing error on top":  {"data_dri: x\n", []string{"danube.yaml:1: unknown key data_dri; did you mean data_dir?"}},
		"wrong section":        {"\nwal:\n  sync: always\n", []string{"danube.yaml:2: unknown key wal; did you mean storage.wal?"}},
		"key in wrong section": {"storage:\n  sync: always\n", []string{"danube.yaml:2: unknown key storage.sync; did you mean storage.wal.sync?"}},
		"nothing near":         {"xyzzy: 1\n", []string{"danube.yaml:1: unknown key xyzzy"}},
		"dotted key":           {"storage.mode: local\n", []string{"danube.yaml:1: unknown key storage.mode"}},
		"two problems":         {"client_port: 70000\nlog_level: loud\n", []string{"danube.yaml:1: client_port: 70000 is more than the most allowed, 65535", `danube.yaml:2: log_level: "loud" is not one of debug, info, warn, error`}},
		"bad duration":         {"shutdown_timeout: soon\n", []string{`danube.yaml:1: shutdown_timeout: "soon" is no duration`}},
		"duration as number":   {"shutdown_timeout: 30\n", []string{`danube.yaml:1: shutdown_timeout: "30" is no duration`}},
		"duration too short":   {"shutdown_timeout: 1ms\n", []string{"1ms is less than the least allowed, 1s"}},
		"bad size":             {"storage: {wal: {segment_bytes: 64MB}}\n", []string{`danube.yaml:1: storage.wal.segment_bytes: "64MB" has no unit MB; did you mean 64MiB?`}},
		"size too small":       {"storage: {wal: {segment_bytes: 1KiB}}\n", []string{"1KiB is less than the least allowed, 1MiB"}},
		"bad enum":             {"storage:\n  mode: lokal\n", []string{`danube.yaml:2: storage.mode: "lokal" is not one of local, shared_fs, object_store; did you mean local?`}},
		"list for a value":     {"data_dir: [a, b]\n", []string{"danube.yaml:1: data_dir: wants one value"}},
		"value for a section":  {"storage: local\n", []string{"danube.yaml:1: storage is a section"}},
		"section for a value":  {"data_dir: {a: b}\n", []string{"danube.yaml:1: data_dir: wants one value"}},
		"bad host":             {"host: nowhere!\n", []string{`host: "nowhere!" is no IP address`}},
		"twice":                {"host: 127.0.0.1\nhost: 127.0.0.2\n", []string{"danube.yaml:2: "}},
		"no YAML":              {"a: [\n", []string{"danube.yaml:1: "}},
		"tab":                  {"storage:\n\tmode: local\n", []string{"danube.yaml:2: "}},
		"a list":               {"- a\n", []string{"danube.yaml"}},
		"mode without a place": {"storage:\n  mode: object_store\n", []string{"danube.yaml:2: storage.mode is object_store: storage.durable.url must say where (s3://…, gs://…, azblob://…)"}},
		"place without a mode": {"storage:\n  durable: {url: \"s3://b\"}\n", []string{"danube.yaml:2: storage.durable.url is set, and storage.mode is local"}},
		"place of another":     {"storage: {mode: shared_fs, durable: {url: \"s3://b?secret=1\"}}\n", []string{`danube.yaml:1: storage.mode is shared_fs: storage.durable.url begins with file://, not "s3"`}},
		"shared folder":        {"storage: {mode: shared_fs, durable: {url: \"file:///mnt/danube\"}, local_retention: {time: 1h, bytes: 1GiB}}\n", nil},
		"bucket":               {"storage: {mode: object_store, durable: {url: \"gs://b?prefix=d/\"}}\n", nil},
		"later write buffer":   {"storage: {write_buffer: {endpoints: [a:6379]}}\n", []string{"danube.yaml:1: storage.write_buffer.endpoints is (set, not shown): this version has no write buffer"}},
		"object on a disk":     {"storage: {durability: object}\n", []string{"danube.yaml:1: storage.durability is object, and storage.mode is local: it needs a cold tier"}},
		"object":               {"storage: {mode: shared_fs, durable: {url: \"file:///mnt\"}, durability: object}\n", nil},
		"later durability":     {"storage: {durability: warm}\n", []string{"storage.durability is warm"}},
		"seeds":                {"cluster: {seeds: [a, b:7000, \"[::1]\"], expect: 3, voters: 5}\n", nil},
		"seed without host":    {"cluster: {seeds: [\":7946\"]}\n", []string{"danube.yaml:1: cluster.seeds: \":7946\" is no HOST[:PORT]"}},
		"seed with a bad port": {"cluster: {seeds: [\"a:http\"]}\n", []string{"has no port between 1 and 65535"}},
		"seed that is nobody":  {"cluster: {seeds: [0.0.0.0]}\n", []string{"is a wildcard"}},
		"even voters":          {"cluster: {voters: 4}\n", []string{"danube.yaml:1: cluster.voters: 4 is even"}},
		"too many voters":      {"cluster: {voters: 7}\n", []string{"7 is more than the most allowed, 5"}},
		"bad key":              {"cluster: {gossip_key: secret!}\n", []string{"danube.yaml:1: cluster.gossip_key: is no base64"}},
		"short key":            {"cluster: {gossip_key: c2VjcmV0}\n", []string{"cluster.gossip_key: has 6 bytes; a key has 16, 24 or 32"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeConfig(t, c.text)
			_, err := Check(Sources{File: file})
			if len(c.says) == 0 {
				if err != nil {
					t.Errorf("says %v, want valid", err)
				}
				return
			}
			if err == nil {
				t.Fatal("says nothing")
			}
			lines := strings.Split(strings.ReplaceAll(err.Error(), filepath.Dir(file)+"/", ""), "\n")
			if len(lines) != len(c.says) {
				t.Fatalf("says\n%s\nwant %d lines", strings.Join(lines, "\n"), len(c.says))
			}
			for i, want := range c.says {
				if !strings.Contains(lines[i], want) {
					t.Errorf("says %q, want %q", lines[i], want)
				}
			}
		})
	}
}

// wholeConfig is the example of docs/configuration.md without its comments.
const wholeConfig = `data_dir: ./danube-data
cluster: {name: danube, seeds: [], expect: 0, advertise: "", voters: 3, lease: 3s, copy_delay: 5m, drain_parallel: 16}
memory: {limit: auto}
subscription: {gap_wait: 60s}
shutdown_timeout: 30s
storage:
  mode: local
  durability: auto
  wal: {segment_bytes: 64MiB, segment_age: 60s, sync: always, sync_interval: 100ms}
  durable: {url: ""}
  write_buffer: {endpoints: [], wait_replicas: 1, wait_timeout: 100ms, on_wait_timeout: fail, max_bytes: 1GiB}
  local_retention: {time: 48h, bytes: 20GiB}
`

// load reads settings as standalone does.
func load(t *testing.T, file string, env, args []string) (Config, []string, error) {
	t.Helper()
	flags := pflag.NewFlagSet("standalone", pflag.ContinueOnError)
	AddFlags(flags, false)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(Sources{File: file, Env: env, Flags: flags})
}

func TestLaterSourcesWin(t *testing.T) {
	file := writeConfig(t, "data_dir: /file\nclient_port: 1\nhost: 127.0.0.9\n")
	c, _, err := load(t, file, []string{"DANUBE_CLIENT_PORT=2", "DANUBE_HTTP_PORT=3", "DANUBE_STORAGE_WAL_SYNC=interval"}, []string{"--http-port", "4"})
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/file" || c.Host != "127.0.0.9" || c.ClientPort != 2 || c.HTTPPort != 4 || c.Storage.WAL.Sync != "interval" || c.LogLevel != "info" {
		t.Errorf("got %+v", c)
	}
}

func TestDefaults(t *testing.T) {
	c, warnings, err := load(t, "", nil, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := Config{
		DataDir: "./danube-data", Host: "127.0.0.1", ClientPort: 6650, PeerPort: 7650, GossipPort: 7946, HTTPPort: 8650, LogLevel: "info",
		Cluster:      clusterConfig{Name: "danube", Seeds: []string{}, Voters: 3, Lease: 3 * time.Second, CopyDelay: 5 * time.Minute, DrainParallel: 16},
		Subscription: subscriptionConfig{GapWait: time.Minute}, ShutdownTimeout: 30 * time.Second,
		Storage: storageConfig{
			Mode: "local", Durability: "auto", LocalRetention: retentionConfig{Time: 48 * time.Hour, Bytes: 20 << 30},
			WAL: walConfig{SegmentBytes: 64 << 20, SegmentAge: time.Minute, Sync: "always", SyncInterval: 100 * time.Millisecond},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		set, machine, want int64
	}{
		"a quarter":       {0, 8 << 30, 2 << 30},
		"at most 4 GiB":   {0, 64 << 30, 4 << 30},
		"set":             {100 << 20, 8 << 30, 100 << 20},
		"unknown machine": {0, 0, 1 << 30},
	} {
		if got := (Config{Memory: memoryConfig{Limit: c.set}}).MemoryLimit(c.machine); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if n := MachineMemory(); n < 64<<20 {
		t.Errorf("this machine has %d bytes of memory", n)
	}
}

// TestNothingIsIgnored: a setting that has no effect is warned of, each by name.
func TestNothingIsIgnored(t *testing.T) {
	_, warnings, err := load(t, "", []string{"DANUBE_STORAGE_LOCAL_RETENTION_BYTES=1GiB", "DANUBE_STORAGE_LOCAL_RETENTION_TIME=1h"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(warnings, "\n")
	for _, want := range []string{"DANUBE_STORAGE_LOCAL_RETENTION_BYTES: storage.local_retention.bytes has no effect", "DANUBE_STORAGE_LOCAL_RETENTION_TIME: storage.local_retention.time has no effect"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

func TestVariablesOfOthersPass(t *testing.T) {
	env := []string{"DANUBE_BROKER=x:1", "DANUBE_PORT=tcp://10.0.0.1:6650", "DANUBE_PORT_6650_TCP_ADDR=10.0.0.1", "DANUBE_SERVICE_HOST=10.0.0.1",
		"DANUBE_SERVICE_PORT_HTTP=8650", "DANUBE_SOMETHING_ELSE=1", "HOME=/root"}
	if _, warnings, err := load(t, "", env, nil); err != nil || len(warnings) > 0 {
		t.Errorf("%v, %v", err, warnings)
	}
	if _, _, err := load(t, "", []string{"DANUBE_STORAGE_WAL_SYNCINTERVAL=1s"}, nil); err == nil || !strings.Contains(err.Error(), "DANUBE_STORAGE_WAL_SYNC_INTERVAL") {
		t.Errorf("a mistyped variable passed: %v", err)
	}
}

// TestReachability: what makes a broker that others cannot reach is refused with what to type.
func TestReachability(t *testing.T) {
	for name, c := range map[string]struct {
		src  Sources
		args string
		says string // "": valid
	}{
		"defaults":                 {Sources{}, "", ""},
		"loopback cluster":         {Sources{Seeds: []string{"127.0.0.12", "127.0.0.13:7000"}}, "--host 127.0.0.11 --expect 3", ""},
		"by name":                  {Sources{Seeds: []string{"danube-1"}}, "", ""},
		"wildcard":                 {Sources{}, "--host 0.0.0.0", "--host: host is 0.0.0.0, a wildcard that no other broker can dial: --advertise names"},
		"wildcard, told":           {Sources{}, "--host 0.0.0.0 --advertise 10.0.0.1", ""},
		"wildcard, told badly":     {Sources{}, "--host 0.0.0.0 --advertise 0.0.0.0:6650", "--advertise: cluster.advertise is 0.0.0.0, a wildcard"},
		"loopback, seed elsewhere": {Sources{Seeds: []string{"10.0.0.2"}}, "", "default: host is 127.0.0.1, which brokers on other machines (seed 10.0.0.2:7946) cannot reach: --host"},
		"alone":                    {Sources{Alone: true}, "--host 0.0.0.0 --expect 1", ""},
		"alone with company":       {Sources{Alone: true, Env: []string{"DANUBE_CLUSTER_SEEDS=a"}}, "", "DANUBE_CLUSTER_SEEDS: cluster.seeds is [a:7946]: a broker that stands alone joins nobody; `danube join` does"},
		"bad seed":                 {Sources{Seeds: []string{"a:b:c"}}, "", "SEED: cluster.seeds: "},
	} {
		t.Run(name, func(t *testing.T) {
			c.src.Flags = pflag.NewFlagSet("join", pflag.ContinueOnError)
			AddFlags(c.src.Flags, false)
			if err := c.src.Flags.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(c.src)
			if (err == nil) != (c.says == "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("says %v, want %q", err, c.says)
			}
		})
	}
}

// TestSeedsAndKey arrive complete.
func TestSeedsAndKey(t *testing.T) {
	c, _, err := load(t, writeConfig(t, "cluster: {seeds: [a, \"b:7000\", \"fd00::1\", \"[fd00::2]\"], gossip_key: MDEyMzQ1Njc4OWFiY2RlZg==}\n"), nil, []string{"--host", "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Cluster.Seeds, " "); got != "a:7946 b:7000 [fd00::1]:7946 [fd00::2]:7946" || string(c.GossipKey()) != "0123456789abcdef" {
		t.Errorf("seeds %s, key %q", got, c.GossipKey())
	}
	if (Config{}).GossipKey() != nil {
		t.Error("no key is one")
	}
}
