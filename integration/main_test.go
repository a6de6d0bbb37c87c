package integration

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the folder of the programs and removes it; each program is built when a test first asks for it.
// Under DANUBE_FAKE the test binary plays the program itself, so that the helpers are tested without one.
func TestMain(m *testing.M) {
	if script := os.Getenv("DANUBE_FAKE"); script != "" {
		os.Exit(fakeDanube(script, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "danube-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.dir = dir
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
