//go:build race

package drivers_test

// slower is by how much less a test does under the race detector. The second page of a list is for plain builds.
const slower = 8
