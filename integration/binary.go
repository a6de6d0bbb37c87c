package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// build is how a program is made. The zero value is the plain build that users get.
type build struct {
	race bool
	tags string // for instance "faults"
}

// raced is what integration runs: a data race in the broker fails the test that provoked it.
func raced() build { return build{race: true} }

// binaries builds each wanted program once for a run of the tests, when a test first asks for it.
type binaries struct {
	dir string

	mu     sync.Mutex
	built  map[build]string
	fusefs string
}

// programs is set up by TestMain, which also removes the folder.
var programs binaries

// path returns the program of a build. DANUBE_BINARY names one that is there already and is taken for every build.
func (p *binaries) path(t testing.TB, b build) string {
	t.Helper()
	if given := os.Getenv("DANUBE_BINARY"); given != "" {
		return given
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if path, ok := p.built[b]; ok {
		return path
	}
	name := "danube"
	args := []string{"-buildvcs=false"}
	if b.race {
		name += "-race"
		args = append(args, "-race")
	}
	if b.tags != "" {
		name += "-" + strings.ReplaceAll(b.tags, ",", "-")
		args = append(args, "-tags", b.tags)
	}
	if overlay := os.Getenv("DANUBE_OVERLAY"); overlay != "" { // a planted bug
		args = append(args, "-overlay", overlay)
	}
	path := p.compile(t, "..", name, append(args, "./cmd/danube")...)
	if p.built == nil {
		p.built = map[build]string{}
	}
	p.built[b] = path
	return path
}

// fuse returns the program of the lossy disk.
func (p *binaries) fuse(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fusefs == "" {
		p.fusefs = p.compile(t, "fuse", "fusefs", "-buildvcs=false", ".")
	}
	return p.fusefs
}

// compile runs go build in a folder. It says nothing of -trimpath: the packages are those that `go test` and `go vet` have
// compiled, and with another flag all of them would be compiled once more.
func (p *binaries) compile(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	cmd := exec.Command("go", append([]string{"build", "-o", path}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// needs skips a test whose program is missing and names the package to install; under CI=true it fails instead.
func needs(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	lacks(t, program, pkg)
	return ""
}

func lacks(t testing.TB, what, pkg string) {
	t.Helper()
	text := fmt.Sprintf("%s is not there: apt-get install %s", what, pkg)
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// scaled is what a test does of a count that an issue asks for: a twentieth, at least one, or all under DANUBE_FULL=1.
func scaled(n int) int {
	if os.Getenv("DANUBE_FULL") == "1" {
		return n
	}
	return max(n/20, 1)
}
