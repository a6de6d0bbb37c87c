package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// crcOf returns the checksum bytes of an encoded command without a body.
func crcOf(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b[:2], crc32.MakeTable(crc32.Castagnoli)))
}

// usedDir returns a directory in which a node with a snapshot and a log behind it was closed.
func usedDir(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	for i := range 100 {
		propose(t, n, createTopic(i))
	}
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		propose(t, n, createTopic(100+i))
	}
	closeNode(t, n)
	removeAll(t, filepath.Join(cfg.Dir, raftDir, reserveFile)) // large, and of no interest
	return cfg
}

// contents returns path and bytes of every file below dir.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %x\n", path, crc32.ChecksumIEEE(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestDamageIsNamedAndNothingTouched: each kind of damage gives one clear error that names the file and the way out,
// and leaves the directory as it was (A55a).
func TestDamageIsNamedAndNothingTouched(t *testing.T) {
	t.Parallel()
	used := usedDir(t)
	snapshotPath := func(t *testing.T, dir, file string) string {
		newest, err := newestSnapshot(filepath.Join(dir, raftDir))
		if err != nil || newest == nil {
			t.Fatalf("no snapshot: %v", err)
		}
		return filepath.Join(newest.dir, file)
	}
	database := func(dir string) string { return filepath.Join(dir, raftDir, databaseFile) }
	for name, c := range map[string]struct {
		damage func(t *testing.T, cfg *Config)
		names  string
	}{
		"database emptied":             {func(t *testing.T, cfg *Config) { write(t, database(cfg.Dir), nil) }, databaseFile},
		"database of three bytes":      {func(t *testing.T, cfg *Config) { write(t, database(cfg.Dir), []byte{7, 1, 9}) }, databaseFile},
		"database of zeroes":           {func(t *testing.T, cfg *Config) { write(t, database(cfg.Dir), make([]byte, 64<<10)) }, databaseFile},
		"database of noise":            {func(t *testing.T, cfg *Config) { write(t, database(cfg.Dir), bytes.Repeat([]byte("noise!!"), 9000)) }, databaseFile},
		"database removed":             {func(t *testing.T, cfg *Config) { removeAll(t, database(cfg.Dir)) }, databaseFile},
		"database cut in half":         {func(t *testing.T, cfg *Config) { cut(t, database(cfg.Dir), 2) }, databaseFile},
		"database cut to a few pages":  {func(t *testing.T, cfg *Config) { cut(t, database(cfg.Dir), 8) }, databaseFile},
		"all pages but two overwriten": {func(t *testing.T, cfg *Config) { overwrite(t, database(cfg.Dir), 8192) }, databaseFile},
		"raft folder removed":          {func(t *testing.T, cfg *Config) { removeAll(t, filepath.Join(cfg.Dir, raftDir)) }, databaseFile},
		"all removed, caller knows": {func(t *testing.T, cfg *Config) {
			removeAll(t, filepath.Join(cfg.Dir, raftDir))
			removeAll(t, filepath.Join(cfg.Dir, markerFile))
			cfg.Bootstrapped = true
		}, databaseFile},
		"new database put in its place": {func(t *testing.T, cfg *Config) { replaceWithNewDatabase(t, database(cfg.Dir)) }, databaseFile},
		"snapshot flipped":              {func(t *testing.T, cfg *Config) { flip(t, snapshotPath(t, cfg.Dir, "state.bin")) }, "state.bin"},
		"snapshot emptied":              {func(t *testing.T, cfg *Config) { write(t, snapshotPath(t, cfg.Dir, "state.bin"), nil) }, "state.bin"},
		"snapshot removed":              {func(t *testing.T, cfg *Config) { removeAll(t, snapshotPath(t, cfg.Dir, "state.bin")) }, "state.bin"},
		"snapshot description emptied":  {func(t *testing.T, cfg *Config) { write(t, snapshotPath(t, cfg.Dir, "meta.json"), nil) }, "meta.json"},
		"snapshot description of noise": {func(t *testing.T, cfg *Config) { write(t, snapshotPath(t, cfg.Dir, "meta.json"), []byte("{}")) }, "meta.json"},
		"snapshots removed":             {func(t *testing.T, cfg *Config) { removeAll(t, filepath.Join(cfg.Dir, raftDir, snapshotDir)) }, snapshotDir},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			if err := os.CopyFS(cfg.Dir, os.DirFS(used.Dir)); err != nil {
				t.Fatal(err)
			}
			c.damage(t, &cfg)
			before := contents(t, cfg.Dir)
			n, err := Open(t.Context(), cfg)
			if err == nil {
				n.Close()
				t.Fatal("opened")
			}
			var damaged *DamagedError
			if !errors.As(err, &damaged) || filepath.Base(damaged.Path) != c.names {
				t.Fatalf("named %v", err)
			}
			if !strings.Contains(err.Error(), "danube cluster rebuild") {
				t.Fatalf("no way out in %q", err)
			}
			if after := contents(t, cfg.Dir); after != before {
				t.Fatalf("the directory changed\n%s\n%s", before, after)
			}
		})
	}
}

func cut(t *testing.T, path string, by int64) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, fi.Size()/by/4096*4096); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	write(t, path, b)
}

func overwrite(t *testing.T, path string, from int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < len(b); i++ {
		b[i] = byte(i * 7)
	}
	write(t, path, b)
}

func replaceWithNewDatabase(t *testing.T, path string) {
	t.Helper()
	removeAll(t, path)
	s, err := openStore(filepath.Dir(path), newMetrics(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryBitOfTheDatabaseHeadsCounts: bbolt goes on from the older head if the newer is bad, and the last committed
// entry would be gone without a word.
func TestEveryBitOfTheDatabaseHeadsCounts(t *testing.T) {
	t.Parallel()
	cfg := usedDir(t)
	path := filepath.Join(cfg.Dir, raftDir, databaseFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(cfg.Dir, true); err != nil {
		t.Fatalf("the undamaged database: %v", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, page := range []int64{0, int64(os.Getpagesize())} {
		for at := page + 16; at < page+80; at++ {
			for bit := range 8 {
				if _, err := f.WriteAt([]byte{good[at] ^ 1<<bit}, at); err != nil {
					t.Fatal(err)
				}
				var damaged *DamagedError
				if _, err := inspect(cfg.Dir, true); !errors.As(err, &damaged) {
					t.Fatalf("bit %d of byte %d: %v", bit, at, err)
				}
			}
			if _, err := f.WriteAt(good[at:at+1], at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRottenEntriesAreFound(t *testing.T) {
	t.Parallel()
	command := func(t *testing.T) []byte {
		b, err := state.Encode(createTopic(1))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		entry raft.Log
		rot   func(l *raft.Log)
	}{
		"command of another type": {raft.Log{Type: raft.LogCommand, Data: command(t)}, func(l *raft.Log) { l.Type = raft.LogNoop }},
		"command of no type":      {raft.Log{Type: raft.LogCommand, Data: command(t)}, func(l *raft.Log) { l.Type = 77 }},
		"flipped command":         {raft.Log{Type: raft.LogCommand, Data: command(t)}, func(l *raft.Log) { l.Data[9] ^= 1 }},
		"emptied configuration": {
			raft.Log{Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "b"}}})},
			func(l *raft.Log) { l.Data = raft.EncodeConfiguration(raft.Configuration{}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := inspectEntry(&c.entry); err != nil {
				t.Fatalf("the undamaged entry: %v", err)
			}
			c.rot(&c.entry)
			if err := inspectEntry(&c.entry); err == nil {
				t.Fatal("not found")
			}
		})
	}
}

// TestCrashWithinTheFirstStartIsNoDamage: until the marker is there, nothing was committed.
func TestCrashWithinTheFirstStartIsNoDamage(t *testing.T) {
	t.Parallel()
	for name, left := range map[string][]byte{
		"empty database": {}, "three bytes": {1, 2, 3}, "zeroes": make([]byte, 16<<10),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			if err := os.MkdirAll(filepath.Join(cfg.Dir, raftDir), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(cfg.Dir, raftDir, databaseFile), left)
			n := openNode(t, cfg)
			propose(t, n, createTopic(1))
			closeNode(t, n)
			if _, err := os.Stat(filepath.Join(cfg.Dir, markerFile)); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("bootstrapped but not marked", func(t *testing.T) {
		cfg := testConfig(t.TempDir())
		n := openNode(t, cfg)
		propose(t, n, createTopic(1))
		closeNode(t, n)
		removeAll(t, filepath.Join(cfg.Dir, markerFile))
		if n = openNode(t, cfg); n.View().TopicCount() != 1 {
			t.Fatal("began anew")
		}
	})
}

func TestMarkerIsCheckedAndRepaired(t *testing.T) {
	t.Parallel()
	used := usedDir(t)
	path := filepath.Join(used.Dir, markerFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"emptied": {}, "three bytes": {1, 2, 3}, "removed": nil} {
		if b == nil {
			removeAll(t, path)
		} else {
			write(t, path, b)
		}
		n := openNode(t, used)
		if n.View().TopicCount() != 110 {
			t.Fatalf("%s: %d topics", name, n.View().TopicCount())
		}
		closeNode(t, n)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
			t.Fatalf("%s: marker is %q, %v", name, now, err)
		}
	}
	before := contents(t, used.Dir)
	used.Store[15]++
	if _, err := Open(t.Context(), used); !errors.Is(err, ErrForeign) {
		t.Fatalf("under another store id: %v", err)
	}
	if contents(t, used.Dir) != before {
		t.Fatal("the directory changed")
	}
}
