//go:build !linux && !darwin

package disk

import (
	"errors"
	"fmt"
)

// refuseNetwork lets everything pass: this system is not asked what it is.
func refuseNetwork(string) error { return nil }

func freeSpace(dir string) (Space, error) {
	return Space{}, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}
