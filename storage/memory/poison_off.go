//go:build !race

package memory

// Poison is left out of plain builds: it costs a pass over every released chunk.
const Poison = false
