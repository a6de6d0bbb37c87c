package settings

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// setting is one key of the configuration: what it may be, its default and what it does.
type setting struct {
	key     string
	kind    settingKind
	value   string   // the default, as it would stand in the file
	allowed []string // of a choice
	least   int64    // of a number, size or duration (ns)
	most    int64    // of the same; 0: no bound
	flag    string   // without the dashes
	joining bool     // the flag is of join alone
	secret  bool     // its value is never printed
	doc     string
}

// settingKind says how a value is read.
type settingKind uint8

const (
	textSetting settingKind = iota
	numberSetting
	sizeSetting // auto is 0, where the default is auto
	durationSetting
	choiceSetting
	boolSetting
	listSetting
	hostSetting
	seedsSetting  // a list of HOST[:PORT]
	votersSetting // an odd number
	keySetting    // base64 of 16, 24 or 32 bytes
)

// keys is every key there is, in the order of the documentation. Keys of later versions are known here, so that
// one file serves a fleet in an upgrade; later.go says which of them are refused.
func keys() []setting {
	return []setting{
		{key: "data_dir", value: "./danube-data", flag: "data-dir", doc: "directory of everything the broker keeps"},
		{key: "host", kind: hostSetting, value: "127.0.0.1", flag: "host", doc: "address to listen on"},
		{key: "client_port", kind: numberSetting, value: "6650", most: 65535, flag: "client-port", doc: "port of clients; 0 takes a free one"},
		{key: "peer_port", kind: numberSetting, value: "7650", most: 65535, flag: "peer-port", joining: true, doc: "port of the other brokers: Raft and requests, TCP; 0 takes a free one"},
		{key: "gossip_port", kind: numberSetting, value: "7946", most: 65535, flag: "gossip-port", joining: true, doc: "port of gossip, TCP and UDP; 0 takes a free one"},
		{key: "http_port", kind: numberSetting, value: "8650", most: 65535, flag: "http-port", doc: "port of health, metrics and the admin API; 0 takes a free one"},
		{key: "name", value: "", flag: "name", joining: true, doc: "name of the broker; without it the one in the data directory, else the host's"},
		{key: "log_level", kind: choiceSetting, value: "info", allowed: []string{"debug", "info", "warn", "error"}, flag: "log-level", doc: "least level that is logged"},
		{key: "pprof", kind: boolSetting, value: "false", flag: "pprof", doc: "serve Go's profiles on the HTTP port"},

		{key: "cluster.name", value: "danube", doc: "name of the cluster"},
		{key: "cluster.seeds", kind: seedsSetting, value: "[]", doc: "brokers to join, HOST[:GOSSIP-PORT]; arguments of join take their place"},
		{key: "cluster.expect", kind: numberSetting, value: "0", most: 1 << 10, flag: "expect", joining: true, doc: "brokers that form the first quorum; 0 only joins one, or without seeds is a cluster of one"},
		{key: "cluster.advertise", value: "", flag: "advertise", doc: "address that others are told, HOST or for clients HOST:PORT; without it the one the broker listens on"},
		{key: "cluster.voters", kind: votersSetting, value: "3", least: 1, most: 5, doc: "brokers that vote on the metadata: 1, 3 or 5"},
		{key: "cluster.lease", kind: durationSetting, value: "3s", least: int64(500 * time.Millisecond), doc: "how long a broker may be silent before others take its topics"},
		{key: "cluster.copy_delay", kind: durationSetting, value: "5m", doc: "how long messages may lie on another broker than their topic's owner before they are copied to it"},
		{key: "cluster.drain_parallel", kind: numberSetting, value: "16", least: 1, most: 1 << 10, doc: "partitions that a drain moves at a time"},
		{key: "cluster.gossip_key", kind: keySetting, value: "", secret: true, doc: "encrypts gossip; the same on every broker"},

		{key: "memory.limit", kind: sizeSetting, value: "auto", least: 64 << 20, doc: "one budget for tails, frames in flight and read-ahead; auto is " + memoryLimitAtMost},
		{key: "subscription.gap_wait", kind: durationSetting, value: "60s", doc: "how long a subscription waits for offsets on a store that is away"},
		{key: "shutdown_timeout", kind: durationSetting, value: "30s", least: int64(time.Second), doc: "how long a stop may take before it is cut short"},

		{key: "storage.mode", kind: choiceSetting, value: "local", allowed: []string{"local", "shared_fs", "object_store"}, doc: "where sealed segments go"},
		{key: "storage.durability", kind: choiceSetting, value: "auto", allowed: []string{"auto", "local", "warm", "object"}, doc: "durability of topics that name none; auto is local without a write buffer"},
		{key: "storage.wal.segment_bytes", kind: sizeSetting, value: "64MiB", least: 1 << 20, most: 4 << 30, doc: "size at which a segment is closed"},
		{key: "storage.wal.segment_age", kind: durationSetting, value: "60s", least: int64(time.Second), doc: "age at which a segment is closed"},
		{key: "storage.wal.sync", kind: choiceSetting, value: "always", allowed: []string{"always", "interval"}, doc: "sync before each acknowledgement, or every sync_interval: then an acknowledgement survives a killed process only"},
		{key: "storage.wal.sync_interval", kind: durationSetting, value: "100ms", least: int64(time.Millisecond), most: int64(time.Minute), doc: "time between syncs with sync: interval"},
		{key: "storage.durable.url", value: "", secret: true, doc: "shared file system or bucket of the cold tier, with ?prefix=; credentials come from the environment or files"},
		{key: "storage.write_buffer.endpoints", kind: listSetting, value: "[]", secret: true, doc: "Valkey or Redis servers"},
		{key: "storage.write_buffer.wait_replicas", kind: numberSetting, value: "1", doc: "replicas that confirm"},
		{key: "storage.write_buffer.wait_timeout", kind: durationSetting, value: "100ms", doc: "how long a confirmation is waited for"},
		{key: "storage.write_buffer.on_wait_timeout", kind: choiceSetting, value: "fail", allowed: []string{"fail", "ack"}, doc: "what happens without it"},
		{key: "storage.write_buffer.max_bytes", kind: sizeSetting, value: "1GiB", least: 1 << 20, doc: "size of the write buffer"},
		{key: "storage.local_retention.time", kind: durationSetting, value: "48h", doc: "how long sealed segments stay on the disk once a cold tier has them"},
		{key: "storage.local_retention.bytes", kind: sizeSetting, value: "20GiB", doc: "how much of all logs stays on the disk, once a cold tier has it"},
	}
}

// AddFlags adds one flag for each setting that has one, for a broker that stands alone only those that are its. Load
// reads and checks their values, so that a flag is judged like a line of the file.
func AddFlags(fs *pflag.FlagSet, alone bool) {
	for _, d := range keys() {
		switch {
		case d.flag == "" || alone && d.joining:
		case d.kind == boolSetting:
			fs.Bool(d.flag, d.value == "true", d.doc)
		default:
			fs.String(d.flag, d.value, d.doc)
		}
	}
}

// envName is the variable that sets a key: DANUBE_STORAGE_WAL_SYNC.
func envName(key string) string {
	return "DANUBE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// parse reads a value as it came from a file (any scalar or list), the environment or a flag (text).
// The result has the type of the config field: string, int, int64, time.Duration, bool, []string.
func (s setting) parse(raw any) (any, error) {
	switch s.kind {
	case listSetting:
		return parseList(raw)
	case seedsSetting:
		return parseSeeds(raw)
	}
	text, ok := scalarText(raw)
	if !ok {
		return nil, fmt.Errorf("wants one value, not a list or a section")
	}
	switch s.kind {
	case numberSetting, votersSetting:
		n, err := ParseCount(text)
		if err != nil {
			return nil, err
		}
		if s.kind == votersSetting && n%2 == 0 {
			return nil, fmt.Errorf("%d is even: an even number of voters survives no more than one less", n)
		}
		return int(n), s.within(n, strconv.FormatInt)
	case sizeSetting:
		if text == "auto" && s.value == "auto" {
			return int64(0), nil
		}
		n, err := ParseSize(text)
		if err != nil {
			return nil, err
		}
		return n, s.within(n, func(n int64, _ int) string { return FormatSize(n) })
	case durationSetting:
		d, err := ParseDuration(text)
		if err != nil {
			return nil, err
		}
		return d, s.within(int64(d), func(n int64, _ int) string { return FormatDuration(time.Duration(n)) })
	case choiceSetting:
		return text, s.chosen(text)
	case boolSetting:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return b, nil
	case keySetting:
		_, err := parseKey(text)
		return text, err
	case hostSetting:
		if net.ParseIP(text) == nil && text != "localhost" {
			return nil, fmt.Errorf("%q is no IP address", text)
		}
	}
	return text, nil
}

func (s setting) chosen(text string) error {
	if slices.Contains(s.allowed, text) {
		return nil
	}
	list := strings.Join(s.allowed, ", ")
	if near := Nearest(text, s.allowed); near != "" {
		return fmt.Errorf("%q is not one of %s; did you mean %s?", text, list, near)
	}
	return fmt.Errorf("%q is not one of %s", text, list)
}

func (s setting) within(n int64, format func(int64, int) string) error {
	most := s.most
	if most == 0 {
		most = math.MaxInt64
	}
	switch {
	case n < s.least:
		return fmt.Errorf("%s is less than the least allowed, %s", format(n, 10), format(s.least, 10))
	case n > most:
		return fmt.Errorf("%s is more than the most allowed, %s", format(n, 10), format(most, 10))
	}
	return nil
}

// format prints a parsed value as it would stand in the file.
func (s setting) format(v any) string {
	switch v := v.(type) {
	case int64:
		if v == 0 && s.value == "auto" {
			return "auto"
		}
		return FormatSize(v)
	case time.Duration:
		return FormatDuration(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// scalarText is a scalar of a YAML file as it was written, more or less.
func scalarText(raw any) (string, bool) {
	switch v := raw.(type) {
	case nil:
		return "", true
	case string:
		return strings.TrimSpace(v), true
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}
