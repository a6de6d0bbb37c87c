//go:build !race

package wal

// poison is left out of plain builds: it costs a pass over every released chunk.
const poison = false
