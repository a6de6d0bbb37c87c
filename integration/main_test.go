package integration

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// atOnce is how many of the tests that call t.Parallel run beside each other, however few processors there are: most of the
// time they wait for leases and for processes to start. Tests that assert times do not call it and run alone.
const atOnce = 4

// TestMain makes the folder of the programs, unless it is given, and removes it; each program is built when a test first asks
// for it.
// Under DANUBE_FAKE the test binary plays the program itself, so that the helpers are tested without one.
func TestMain(m *testing.M) {
	if script := os.Getenv("DANUBE_FAKE"); script != "" {
		os.Exit(fakeDanube(script, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	// Programs that lie in DANUBE_PROGRAMS are linked anew only if they are not what the sources say.
	programs.dir = os.Getenv("DANUBE_PROGRAMS")
	if programs.dir == "" || os.Getenv("DANUBE_OVERLAY") != "" {
		dir, err := os.MkdirTemp("", "danube-programs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "make folder for programs:", err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs.dir = dir
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
			fmt.Fprintln(os.Stderr, "set -parallel:", err)
			return 1
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
