// Package integration runs whole brokers as real processes, hurts them, and checks what clients saw.
//
// cluster.go starts and ends brokers and runs the command line; mangler.go damages their files; history/ judges what
// clients were told; planted/ holds bugs that a suite must catch; fuse/ is a file system that loses power. The rules
// of the house (arrows, bounds, licences) are tests here too: their names begin with TestRule and `make check` runs
// them. Tests that ask for a count run a twentieth of it, and all of it under DANUBE_FULL=1 (`make full-…`).
package integration
