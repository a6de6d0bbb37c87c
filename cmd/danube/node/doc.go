// Package node is what makes of settings one running broker, short of running it: its configuration, the name it goes by
// from start to start, and, where it does not start, what is in the way and what would help.
package node
