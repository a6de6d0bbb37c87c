//go:build !race

package drivers_test

const slower = 1
