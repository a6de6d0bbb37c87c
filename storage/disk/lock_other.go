//go:build !unix

package disk

import (
	"errors"
	"fmt"
	"io"
)

func lockFile(name string) (io.Closer, error) {
	return nil, fmt.Errorf("lock %s: %w", name, errors.ErrUnsupported)
}
