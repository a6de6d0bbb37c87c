//go:build race

package wal

// poison makes released chunks unreadable, so that a use after release shows.
const poison = true
