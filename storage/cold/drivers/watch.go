package drivers

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// errCredentials says that no credentials were found, or that whoever gives them refused.
var errCredentials = errors.New("get credentials")

// noCredentials is what an Answer says of errCredentials, where no server had a word for it.
const noCredentials = "InvalidCredentials"

// lookAgain is how old a look at the files and the environment may be.
const lookAgain = time.Second

// watch tells when what credentials are made of has changed.
type watch struct {
	env   []string        // names of variables
	files func() []string // paths; those that are missing count as empty
	now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	stale  bool // look at once, and take what is there for new
	digest [sha256.Size]byte
}

// changed reports whether anything is different from when it last said so. The first call says true.
func (w *watch) changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if since := now.Sub(w.looked); !w.looked.IsZero() && !w.stale && since >= 0 && since < lookAgain {
		return false
	}
	digest := w.look()
	different := w.stale || w.looked.IsZero() || digest != w.digest
	w.looked, w.digest, w.stale = now, digest, false
	return different
}

// renew makes the next changed true: what was made of these files was refused.
func (w *watch) renew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
}

func (w *watch) look() (digest [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range w.env {
		fmt.Fprintf(h, "%s=%q\n", name, os.Getenv(name))
	}
	for _, path := range w.files() {
		text, err := os.ReadFile(path)
		fmt.Fprintf(h, "%q %t %q\n", path, err == nil, text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
