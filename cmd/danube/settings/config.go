package settings

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Config is what a broker is started with: defaults, file, environment and
// flags in one, checked. Its keys are those of settings; the command turns it
// into the broker's own configuration.
type Config struct {
	DataDir         string             `koanf:"data_dir"`
	Host            string             `koanf:"host"`
	ClientPort      int                `koanf:"client_port"`
	PeerPort        int                `koanf:"peer_port"`
	GossipPort      int                `koanf:"gossip_port"`
	HTTPPort        int                `koanf:"http_port"`
	Name            string             `koanf:"name"`
	LogLevel        string             `koanf:"log_level"`
	Pprof           bool               `koanf:"pprof"`
	Cluster         clusterConfig      `koanf:"cluster"`
	Memory          memoryConfig       `koanf:"memory"`
	Subscription    subscriptionConfig `koanf:"subscription"`
	ShutdownTimeout time.Duration      `koanf:"shutdown_timeout"`
	Storage         storageConfig      `koanf:"storage"`
}

type clusterConfig struct {
	Name          string        `koanf:"name"`
	Seeds         []string      `koanf:"seeds"` // host:port
	Expect        int           `koanf:"expect"`
	Advertise     string        `koanf:"advertise"`
	Voters        int           `koanf:"voters"`
	Lease         time.Duration `koanf:"lease"`
	CopyDelay     time.Duration `koanf:"copy_delay"`
	DrainParallel int           `koanf:"drain_parallel"`
	GossipKey     string        `koanf:"gossip_key"` // base64
}

// GossipKey is cluster.gossip_key in bytes, nil when there is none.
func (c Config) GossipKey() []byte {
	key, err := parseKey(c.Cluster.GossipKey)
	if err != nil || len(key) == 0 {
		return nil // Load let none pass that is wrong
	}
	return key
}

type memoryConfig struct {
	Limit int64 `koanf:"limit"` // bytes; 0 for auto
}

type subscriptionConfig struct {
	GapWait time.Duration `koanf:"gap_wait"`
}

type storageConfig struct {
	Mode           string          `koanf:"mode"`
	Durability     string          `koanf:"durability"`
	WAL            walConfig       `koanf:"wal"`
	Durable        durableConfig   `koanf:"durable"`
	LocalRetention retentionConfig `koanf:"local_retention"`
}

type durableConfig struct {
	URL string `koanf:"url"` // empty in mode local
}

type retentionConfig struct {
	Time  time.Duration `koanf:"time"`
	Bytes int64         `koanf:"bytes"`
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

// MemoryLimit is memory.limit in bytes, auto resolved for a machine with total bytes.
func (c Config) MemoryLimit(total int64) int64 {
	if c.Memory.Limit > 0 {
		return c.Memory.Limit
	}
	if total <= 0 {
		total = unknownMachine
	}
	return min(total/autoMemoryShare, autoMemoryMax)
}

// MachineMemory is the memory this process may use in bytes: the machine's, or the
// control group's if that is less. 0 where the system does not tell.
func MachineMemory() int64 {
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
