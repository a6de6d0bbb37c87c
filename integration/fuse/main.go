// Command fusefs mounts a folder so that it can lose power, run out of space and fail.
//
//	fusefs BACKING MOUNTPOINT
//
// It prints "mounted" and then obeys lines on standard input, answering each with one line, "ok …" or "error …":
//
//	lose            undo every write, truncation and change of a directory that was not synced, and mount anew
//	lose SEED       the same, but some unsynced pages and changes survive or are torn, as on a real disk
//	fail OP ERRNO [COUNT [PART]]   OP is write or sync, ERRNO ENOSPC or EIO; COUNT -1 is for ever; PART of the path
//	space BYTES     files may grow by so much in all; -1 lifts the bound
//	heal            nothing fails any more, space is unbounded; left=N: how many failures that were asked for nobody met
//	stats           how many writes and syncs there were
//
// It ends when its input ends. A file's data is durable after fsync or fdatasync of the file, its name after fsync of
// the directory: a file system may promise more, the programs under test may not rely on it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fusefs BACKING MOUNTPOINT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fusefs:", err)
		os.Exit(1)
	}
}

// run mounts and obeys until the input ends.
func run(backing, mountpoint string, in io.Reader, out io.Writer) (err error) {
	backing, err = filepath.Abs(backing)
	if err != nil {
		return fmt.Errorf("find backing folder: %w", err)
	}
	m := &mount{backing: backing, point: mountpoint}
	if m.journal, err = newJournal(backing + ".removed"); err != nil {
		return err
	}
	if err := m.up(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.down(), os.RemoveAll(m.journal.grave)) }()
	fmt.Fprintln(out, "mounted")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if answer, err := m.obey(strings.Fields(lines.Text())); err != nil {
			fmt.Fprintln(out, "error", err)
		} else {
			fmt.Fprintln(out, strings.TrimSpace("ok "+answer))
		}
	}
	return lines.Err()
}

// mount is the mount point over its life; each loss of power begins a new world with an empty journal.
type mount struct {
	backing, point string
	journal        *journal
	faults         *faults
	server         *fuse.Server
}

func (m *mount) up() error {
	m.faults = &faults{space: -1}
	root := &node{LoopbackNode: fs.LoopbackNode{}, world: &world{journal: m.journal, faults: m.faults}}
	root.RootData = &fs.LoopbackRoot{Path: m.backing, RootNode: root}
	server, err := fs.Mount(m.point, root, &fs.Options{MountOptions: fuse.MountOptions{
		FsName: "fusefs", DirectMount: true, MaxWrite: 1 << 20,
	}})
	if err != nil {
		return fmt.Errorf("mount %s: %w", m.point, err)
	}
	m.server = server
	return nil
}

// down detaches the mount point: a plain unmount is busy as long as a killed process is not quite gone.
func (m *mount) down() error {
	if err := unix.Unmount(m.point, unix.MNT_DETACH); err != nil {
		return m.server.Unmount()
	}
	return nil
}

// lose stops the present world at once, undoes what was not synced and begins a new world.
func (m *mount) lose(rnd *rand.Rand) (string, error) {
	m.faults.mu.Lock()
	m.faults.dead = true
	m.faults.mu.Unlock()
	files, entries, err := m.journal.lose(rnd)
	if err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	if err := m.down(); err != nil {
		return "", fmt.Errorf("unmount: %w", err)
	}
	return fmt.Sprintf("writes=%d entries=%d", files, entries), m.up()
}

func (m *mount) obey(words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("empty command")
	}
	args := words[1:]
	switch words[0] {
	case "lose":
		if len(args) == 0 {
			return m.lose(nil)
		}
		seed, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return "", fmt.Errorf("read seed: %w", err)
		}
		return m.lose(rand.New(rand.NewPCG(seed, seed)))
	case "fail":
		return "", m.faults.fail(args)
	case "space", "heal":
		space := int64(-1)
		if words[0] == "space" {
			if len(args) != 1 {
				return "", errors.New("usage: space BYTES")
			}
			var err error
			if space, err = strconv.ParseInt(args[0], 10, 64); err != nil {
				return "", fmt.Errorf("read space: %w", err)
			}
		}
		m.faults.mu.Lock()
		defer m.faults.mu.Unlock()
		m.faults.space = space
		if words[0] != "heal" {
			return "", nil
		}
		left := 0
		for _, r := range m.faults.rules {
			left += max(r.left, 0)
		}
		m.faults.rules = nil
		return fmt.Sprintf("left=%d", left), nil
	case "stats":
		m.faults.mu.Lock()
		defer m.faults.mu.Unlock()
		return fmt.Sprintf("writes=%d syncs=%d", m.faults.writes, m.faults.syncs), nil
	default:
		return "", fmt.Errorf("unknown command %q", words[0])
	}
}
