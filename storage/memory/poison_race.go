//go:build race

package memory

// Poison makes released chunks unreadable, so that a use after release shows.
const Poison = true
