//go:build planted

package planted

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// caughtWithin bounds one bug: building it and running its test.
const caughtWithin = 10 * time.Minute

// hangsAfter is when a test that a bug makes hang counts as red: go test ends it with a panic.
const hangsAfter = "2m"

// TestPlantedBugsAreCaught builds each bug and asserts that its test goes red. PLANT picks one by name; PLANT_PART=k/n picks
// every n-th, beginning with the k-th, counted from 0.
func TestPlantedBugsAreCaught(t *testing.T) {
	bugs, err := Load("bugs")
	if err != nil {
		t.Fatal(err)
	}
	only, ran := os.Getenv("PLANT"), 0
	k, n := part(t, os.Getenv("PLANT_PART"))
	for i, b := range bugs {
		if only != "" && only != b.Name || i%n != k {
			continue
		}
		ran++
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel() // one is compiled while another waits for what the bug keeps from happening
			out, red := runWith(t, b)
			switch {
			case !red:
				t.Errorf("breaks %q and stays green:\n%s", b.Rule, out)
			case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
				t.Errorf("does not build, which proves nothing:\n%s", out)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:") && !strings.Contains(out, "fatal error:"):
				t.Errorf("no test failed, which proves nothing:\n%s", out)
			default:
				t.Logf("%s: seen", b.Rule)
			}
		})
	}
	if ran == 0 {
		t.Fatalf("no bug is named %q", only)
	}
}

// part reads "k/n"; nothing means all.
func part(t *testing.T, text string) (k, n int) {
	if text == "" {
		return 0, 1
	}
	if _, err := fmt.Sscanf(text, "%d/%d", &k, &n); err != nil || n < 1 || k < 0 || k >= n {
		t.Fatalf("PLANT_PART=%s is not k/n with k below n", text)
	}
	return k, n
}

// runWith runs the test of a bug with the bug built in and returns what it printed and whether it failed.
func runWith(t *testing.T, b Bug) (string, bool) {
	t.Helper()
	text, err := b.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(top, b.File): changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{changed: text, overlay: list} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), caughtWithin)
	defer cancel()
	args := []string{"test", "-vet=off", "-count=1", "-failfast", "-timeout", hangsAfter, "-overlay", overlay, "-run", b.Pattern, b.Package}
	// A broker that the test builds gets the bug as well.
	env := append(os.Environ(), "DANUBE_OVERLAY="+overlay)
	if b.Package == "chaos" {
		minutes, seed, _ := strings.Cut(b.Pattern, " ")
		args = []string{"test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^TestChaos$", "./integration"}
		env = append(env, "CHAOS_MINUTES="+minutes, "CHAOS_SEED="+seed)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = top, env
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}
