package meta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// A backup is: magic, version u8 · a snapshot of the state · SHA-256 of all that.
const (
	backupMagic   = "DNBB"
	backupVersion = 1
	backupHead    = len(backupMagic) + 1
)

// Backup writes the metadata as this node has applied it, for Restore. It holds up nothing. Call Barrier first for a
// backup that has everything committed so far.
func (n *Node) Backup(w io.Writer) error {
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	_, err := both.Write(append([]byte(backupMagic), backupVersion))
	if err == nil {
		_, err = n.View().WriteTo(both)
	}
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	if err != nil {
		return fmt.Errorf("write metadata backup: %w", err)
	}
	return nil
}

// Restore replaces the metadata of the whole cluster by a backup of it and begins a new history in the same step (R22):
// no epoch that was granted after the backup was made can be granted again. The members stay what they are. On the
// leader only; it returns when a majority has the new state. What is proposed meanwhile ends as ErrUnknown.
//
// Errors: ErrNotLeader, ErrForeign for a backup of another cluster, state.ErrDamaged, state.ErrNewerCommand; nothing was
// changed then. ErrUnknown: it may be restored.
func (n *Node) Restore(ctx context.Context, r io.Reader) error {
	return n.change(ctx, func() error {
		f, err := os.CreateTemp(filepath.Join(n.cfg.Dir, raftDir), "restore-*.tmp")
		if err != nil {
			return fmt.Errorf("restore metadata: %w", err)
		}
		defer func() {
			// Nothing depends on a temporary file that stays.
			_ = f.Close()
			_ = os.Remove(f.Name())
		}()
		s, err := readBackup(f, r)
		if err != nil {
			return fmt.Errorf("restore metadata: %w", err)
		}
		now := n.View().Cluster()
		if now.ID != [16]byte{} && now.ID != s.Cluster().ID {
			return fmt.Errorf("restore metadata: %w: the backup is of cluster %x, this is cluster %x", ErrForeign, s.Cluster().ID, now.ID)
		}
		if err := beginHistory(s, max(now.History, s.Cluster().History)); err != nil {
			return fmt.Errorf("restore metadata: %w", err)
		}
		if err := rewrite(f, s.Freeze()); err != nil {
			return fmt.Errorf("restore metadata: %w", err)
		}
		if err := n.replaceState(ctx, f); err != nil {
			return fmt.Errorf("restore metadata: %w", err)
		}
		// The state came with the index of the backup; those who wait for a later one go on with the next command.
		_, err = n.Propose(ctx, &state.Tick{})
		return err
	})
}

// replaceState has Raft take the snapshot in f in place of the state.
func (n *Node) replaceState(ctx context.Context, f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Size: size}
	// Raft reads f in its own goroutine, also after ctx is done; the file must not be closed under it.
	return n.call(context.WithoutCancel(ctx), func() error { return translate(n.raft.Restore(meta, f, 0)) })
}

// readBackup copies a backup to f and returns the state in it.
func readBackup(f *os.File, r io.Reader) (*state.State, error) {
	size, err := io.Copy(f, r)
	if err != nil {
		return nil, fmt.Errorf("copy the backup: %w", err)
	}
	body := size - int64(backupHead) - sha256.Size
	head, want := make([]byte, backupHead), make([]byte, sha256.Size)
	if body < 0 {
		return nil, fmt.Errorf("%w: a backup of %d bytes", state.ErrDamaged, size)
	}
	_, err = f.ReadAt(head, 0)
	if err == nil {
		_, err = f.ReadAt(want, size-sha256.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if string(head[:len(backupMagic)]) != backupMagic {
		return nil, fmt.Errorf("%w: not a metadata backup", state.ErrDamaged)
	}
	if v := head[len(backupMagic)]; v > backupVersion {
		return nil, fmt.Errorf("%w (backup version %d, this release knows %d)", state.ErrNewerCommand, v, backupVersion)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size-sha256.Size)); err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, fmt.Errorf("%w: the backup fails its checksum", state.ErrDamaged)
	}
	return state.Restore(io.NewSectionReader(f, int64(backupHead), body))
}

// rewrite makes v, as a snapshot, all that is in f.
func rewrite(f *os.File, v *state.View) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := v.WriteTo(f)
	return err
}

// beginHistory makes the history of s the one after newest, which is not below its present one.
func beginHistory(s *state.State, newest uint16) error {
	if newest == math.MaxUint16 {
		return errors.New("no history is left")
	}
	for h := s.Cluster().History; h <= newest; h++ {
		if r := s.Apply(s.Index(), &state.NewHistory{History: h + 1}); r.Err != nil {
			return fmt.Errorf("begin a new history: %w", r.Err)
		}
	}
	return nil
}
