package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// config is what a broker is started with: defaults, file, environment and
// flags in one, checked. Its keys are those of settings; standalone.go turns it
// into the broker's own configuration.
type config struct {
	DataDir         string             `koanf:"data_dir"`
	Host            string             `koanf:"host"`
	ClientPort      int                `koanf:"client_port"`
	HTTPPort        int                `koanf:"http_port"`
	LogLevel        string             `koanf:"log_level"`
	Pprof           bool               `koanf:"pprof"`
	Cluster         clusterConfig      `koanf:"cluster"`
	Memory          memoryConfig       `koanf:"memory"`
	Subscription    subscriptionConfig `koanf:"subscription"`
	ShutdownTimeout time.Duration      `koanf:"shutdown_timeout"`
	Storage         storageConfig      `koanf:"storage"`
}

type clusterConfig struct {
	Name      string `koanf:"name"`
	Advertise string `koanf:"advertise"`
}

type memoryConfig struct {
	Limit int64 `koanf:"limit"` // bytes; 0 for auto
}

type subscriptionConfig struct {
	GapWait time.Duration `koanf:"gap_wait"`
}

type storageConfig struct {
	Durability string    `koanf:"durability"`
	WAL        walConfig `koanf:"wal"`
}

type walConfig struct {
	SegmentBytes int64         `koanf:"segment_bytes"`
	SegmentAge   time.Duration `koanf:"segment_age"`
	Sync         string        `koanf:"sync"`
	SyncInterval time.Duration `koanf:"sync_interval"`
}

// The share of memory that memory.limit takes when it is auto, and where it stops.
const (
	autoMemoryShare   = 4
	autoMemoryMax     = 4 << 30
	unknownMachine    = 4 << 30 // what is assumed where the system does not tell
	memoryLimitAtMost = "a quarter of the machine's memory, at most 4 GiB"
)

// memoryLimit is memory.limit in bytes, auto resolved for a machine with total bytes.
func (c config) memoryLimit(total int64) int64 {
	if c.Memory.Limit > 0 {
		return c.Memory.Limit
	}
	if total <= 0 {
		total = unknownMachine
	}
	return min(total/autoMemoryShare, autoMemoryMax)
}

// machineMemory is the memory this process may use in bytes: the machine's, or the
// control group's if that is less. 0 where the system does not tell.
func machineMemory() int64 {
	total := memTotal()
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}

func memTotal() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// refuse names what the settings ask for and this version does not have, and
// what has no effect as things stand: the first is an error, the second a warning.
func (s *settingsRead) refuse() (warnings []string, err error) {
	var errs []error
	for _, later := range laterSettings() {
		v, from := s.text(later.key), s.origins[later.key]
		if slices.Contains(later.neutral, v) || from.kind == fromDefault {
			continue
		}
		if later.refused != "" {
			errs = append(errs, fmt.Errorf("%s: %s is %s: %s", from.where(), later.key, s.shown(later.key), later.refused))
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s has no effect: %s", from.where(), later.key, later.idle))
	}
	return warnings, errors.Join(errs...)
}

// laterSetting is a known key whose matter this version does not have.
type laterSetting struct {
	key     string
	neutral []string // values that ask for nothing
	refused string   // why another value is an error
	idle    string   // why another value is a warning
}

func laterSettings() []laterSetting {
	const (
		oneBroker = "this version runs one broker alone, without a cluster to join"
		noBuffer  = "this version has no write buffer"
		noTiers   = "this version stores on the broker's own disk only"
		never     = "sealed segments stay on this disk; nothing is deleted from it but what a topic's retention says"
	)
	return []laterSetting{
		{key: "storage.mode", neutral: []string{"local"}, refused: noTiers + " (local)"},
		{key: "storage.durability", neutral: []string{"auto", "local"}, refused: noTiers + ": acknowledgements survive at level local"},
		{key: "storage.durable.url", neutral: []string{""}, refused: noTiers},
		{key: "storage.write_buffer.endpoints", neutral: []string{"[]"}, refused: noBuffer},
		{key: "cluster.seeds", neutral: []string{"[]"}, refused: oneBroker},
		{key: "cluster.expect", neutral: []string{"0"}, refused: oneBroker},
		{key: "cluster.voters", neutral: []string{"3"}, idle: oneBroker},
		{key: "cluster.lease", neutral: []string{"3s"}, idle: oneBroker},
		{key: "cluster.copy_delay", neutral: []string{"5m"}, idle: oneBroker},
		{key: "cluster.drain_parallel", neutral: []string{"16"}, idle: oneBroker},
		{key: "storage.write_buffer.wait_replicas", neutral: []string{"1"}, idle: noBuffer},
		{key: "storage.write_buffer.wait_timeout", neutral: []string{"100ms"}, idle: noBuffer},
		{key: "storage.write_buffer.on_wait_timeout", neutral: []string{"fail"}, idle: noBuffer},
		{key: "storage.write_buffer.max_bytes", neutral: []string{"1GiB"}, idle: noBuffer},
		{key: "storage.local_retention.time", neutral: []string{"48h"}, idle: never},
		{key: "storage.local_retention.bytes", neutral: []string{"20GiB"}, idle: never},
	}
}
