package folder

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/storage/disk"
)

const (
	markerName = ".danube-store" // in the root, with a random text
	tempName   = ".danube-parts" // in the root: writes that are not finished
	tempAge    = 24 * time.Hour  // no write lives so long
	maxCalls   = 256             // calls of the file system that have not returned
	closeWait  = 2 * time.Second
)

// ErrGone says that the folder is not the one that was opened: most likely its
// file system is no longer mounted.
var ErrGone = errors.New("the folder has lost its marker " + markerName + ": is its file system mounted?")

// ErrOther says that the folder is another store than the one that was used before.
var ErrOther = errors.New("the folder is another store than before, its marker " + markerName + " says: is the right file system mounted?")

// errKey refuses a key that would leave the folder or hide in it.
var errKey = errors.New("key with an empty element, one that begins with a dot, or a backslash")

// bucket implements gocloud's driver.Bucket.
type bucket struct {
	fsys  disk.FS
	root  string
	mark  string // what the marker says, for ever
	now   func() time.Time
	slots chan struct{}
	calls sync.WaitGroup

	mu    sync.Mutex
	made  map[string]bool  // directories whose entry in their parent is durable
	spoil map[string]error // directories a sync of which failed
}

// Used says whether the folder root was opened before: ErrGone if it has no marker. It changes nothing.
func Used(fsys disk.FS, root string) error {
	_, err := fsys.Stat(path.Join(root, markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (%s)", ErrGone, root)
	}
	return err
}

// Mark returns what the marker of the folder root says: it tells stores apart.
func Mark(fsys disk.FS, root string) (string, error) {
	text, err := disk.ReadFile(fsys, path.Join(root, markerName))
	return strings.TrimSpace(string(text)), err
}

// Open opens the folder root. mark is what [Mark] said when the folder was used before: a folder that has another marker, or
// is not there, is opened all the same, and every call is an error until it is back. With an empty mark the folder must exist;
// it is given a marker when it has none. What writes left behind a day ago is removed. now tells the time.
func Open(ctx context.Context, fsys disk.FS, root, mark string, now func() time.Time) (*blob.Bucket, error) {
	b := &bucket{
		fsys: fsys, root: root, mark: mark, now: now, slots: make(chan struct{}, maxCalls),
		made: make(map[string]bool), spoil: make(map[string]error),
	}
	if err := b.do(ctx, b.prepare, nil); err != nil {
		return nil, fmt.Errorf("open folder %s: %w", root, errors.Join(err, b.Close()))
	}
	return blob.NewBucket(b), nil
}

func (b *bucket) prepare() error {
	if b.mark != "" {
		if b.mounted() != nil {
			return nil // each call says so
		}
		return b.sweep()
	}
	e, err := b.fsys.Stat(b.root)
	if err != nil {
		return err
	}
	if !e.Dir {
		return &fs.PathError{Op: "open", Path: b.root, Err: errors.New("not a directory")}
	}
	if err := disk.MkdirAll(b.fsys, b.path(tempName)); err != nil {
		return err
	}
	if _, err := b.fsys.Stat(b.path(markerName)); errors.Is(err, fs.ErrNotExist) {
		err = b.makeMarker()
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if b.mark, err = Mark(b.fsys, b.root); err != nil {
		return err
	}
	return b.sweep()
}

// makeMarker makes the marker; of several brokers that do so at once one wins, and all are content.
func (b *bucket) makeMarker() error {
	temp := b.temp()
	if err := disk.WriteFileAtomic(b.fsys, temp, []byte(rand.Text()+"\n")); err != nil {
		return err
	}
	err := b.fsys.Link(temp, b.path(markerName))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return errors.Join(err, b.fsys.Remove(temp))
	}
	return errors.Join(b.fsys.SyncDir(b.root), b.fsys.Remove(temp))
}

// temp is a new name for a write that is not finished. It begins with the time, so that sweep needs no other clock.
func (b *bucket) temp() string {
	return b.path(tempName + "/" + fmt.Sprintf("%020d-%s", b.now().UnixMilli(), rand.Text()))
}

// sweep removes what was begun a day ago and never finished.
func (b *bucket) sweep() error {
	entries, err := b.fsys.ReadDir(b.path(tempName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before := fmt.Sprintf("%020d", b.now().Add(-tempAge).UnixMilli())
	for _, e := range entries {
		if e.Dir || len(e.Name) < len(before) || e.Name[:len(before)] >= before {
			continue
		}
		if err := b.fsys.Remove(b.path(tempName + "/" + e.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (b *bucket) path(key string) string { return path.Join(b.root, key) }

// checkKey refuses what is no plain relative path.
func checkKey(key string) error {
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || element[0] == '.' || strings.ContainsAny(element, "\\\x00") {
			return errKey
		}
	}
	return nil
}

// mounted fails when the marker is gone, or is another. It is asked before anything is written and before "not found" is
// believed.
func (b *bucket) mounted() error {
	mark, err := Mark(b.fsys, b.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrGone
	case err == nil && mark != b.mark:
		return ErrOther
	}
	return err
}

// missing judges an error of looking for an object: not found is believed of a mounted folder only.
func (b *bucket) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if gone := b.mounted(); gone != nil {
			return gone
		}
	}
	return err
}

// abandonedError is what do returns when it did not wait for f.
type abandonedError struct{ err error }

func (e *abandonedError) Error() string { return e.err.Error() }
func (e *abandonedError) Unwrap() error { return e.err }

// do calls f apart from the caller and returns when it has, or, with an *abandonedError, when ctx ends. In the latter
// case what f uses belongs to f for as long as the file system holds it, and abandoned (nil is allowed) runs when f no
// longer does, or never did.
func (b *bucket) do(ctx context.Context, f func() error, abandoned func()) error {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		if abandoned != nil {
			b.calls.Go(abandoned) // returns when the file system does
		}
		return &abandonedError{ctx.Err()}
	}
	done := make(chan error) // without room: what is not taken was abandoned
	b.calls.Go(func() {      // returns when the file system does
		defer func() { <-b.slots }()
		err := f()
		select {
		case done <- err:
		case <-ctx.Done():
			if abandoned != nil {
				abandoned()
			}
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &abandonedError{ctx.Err()}
	}
}

// Close waits a little for calls that hang.
func (b *bucket) Close() error {
	ended := make(chan struct{})
	go func() { // returns when the file system has answered every call
		b.calls.Wait()
		close(ended)
	}()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("close folder %s: %d calls have not returned", b.root, len(b.slots))
	}
}

// ErrorCode tells gocloud what an error means.
func (b *bucket) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, ErrGone), errors.Is(err, ErrOther):
		return gcerrors.Internal
	case errors.Is(err, fs.ErrNotExist):
		return gcerrors.NotFound
	case errors.Is(err, fs.ErrExist):
		return gcerrors.FailedPrecondition
	case errors.Is(err, fs.ErrPermission):
		return gcerrors.PermissionDenied
	case errors.Is(err, errKey):
		return gcerrors.InvalidArgument
	case disk.NoSpace(err):
		return gcerrors.ResourceExhausted
	case errors.Is(err, errors.ErrUnsupported):
		return gcerrors.Unimplemented
	}
	return gcerrors.Unknown
}
