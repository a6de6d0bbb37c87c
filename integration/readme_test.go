//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// block is a fenced piece of the README: its language and its lines.
type block struct{ language, text string }

// readmeBlocks are the fenced pieces of one section, in order.
func readmeBlocks(t testing.TB, section string) []block {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("the README has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var all []block
	for parts := strings.Split(rest, "```"); len(parts) > 2; parts = parts[2:] {
		language, body, _ := strings.Cut(parts[1], "\n")
		all = append(all, block{language, body})
	}
	return all
}

// command is a line of a block without its comment.
func commandsOf(b block) []string {
	var all []string
	for line := range strings.Lines(b.text) {
		line, _, _ = strings.Cut(line, "  #")
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// TestReadmeQuickStart carries out what the README says, as it stands there: the commands, the exact output, and the
// kill -9 after it. Only ports and data directory are moved, by the environment.
func TestReadmeQuickStart(t *testing.T) {
	blocks := readmeBlocks(t, "Quick start")
	if len(blocks) != 3 {
		t.Fatalf("the quick start has %d blocks, want the set-up, the commands and their output", len(blocks))
	}
	setup, use, output := commandsOf(blocks[0]), commandsOf(blocks[1]), blocks[2].text
	if len(setup) != 2 || !strings.HasSuffix(setup[0], "danube standalone") || setup[1] != "make test" || len(use) != 2 {
		t.Fatalf("the quick start says %q, then %q", setup, use)
	}
	client, http := freePort(t), freePort(t)
	env := append(os.Environ(), "DANUBE_DATA_DIR="+filepath.Join(t.TempDir(), "danube-data"),
		fmt.Sprintf("DANUBE_CLIENT_PORT=%d", client), fmt.Sprintf("DANUBE_HTTP_PORT=%d", http),
		fmt.Sprintf("DANUBE_BROKER=127.0.0.1:%d", client))
	shell := func(line string) *exec.Cmd {
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir, cmd.Env = "..", env
		return cmd
	}
	start := func(name string) (kill func()) {
		cmd := shell("exec " + setup[0])
		p := spawnGroup(t, name, cmd)
		if _, err := p.line("ready ", 5*time.Minute); err != nil { // a fresh clone compiles first
			t.Fatal(err)
		}
		return func() {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			<-p.done
		}
	}
	kill := start("first")
	for i, line := range use {
		var stderr bytes.Buffer
		cmd := shell(line)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, stderr.String())
		}
		if i == len(use)-1 && string(out) != output {
			t.Errorf("%s prints %q, the README says %q", line, out, output)
		}
	}
	kill()
	kill = start("second")
	if out, err := shell(use[1]).Output(); err != nil || string(out) != output {
		t.Errorf("after kill -9 %s prints %q, %v", use[1], out, err)
	}
	kill()
	if text, err := os.ReadFile("../Makefile"); err != nil || !bytes.Contains(text, []byte("\ntest:\n")) {
		t.Errorf("there is no make test: %v", err)
	}
}

// TestReadmeBucket carries out what the README says of a bucket, on addresses and in folders of its own.
func TestReadmeBucket(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t, "A bucket")
	if len(blocks) != 1 {
		t.Fatalf("the section holds %+v", blocks)
	}
	o := newOperator(t, page{title: "A bucket", commands: commandsOf(blocks[0])}, nil, raced())
	o.next("mkdir danube-cold")
	settings := o.next("export DANUBE_STORAGE_MODE=shared_fs DANUBE_STORAGE_DURABLE_URL=file://$PWD/danube-cold")
	cold := t.TempDir()
	for name := range strings.FieldsSeq(strings.ReplaceAll(strings.TrimPrefix(settings, "export "), "$PWD/danube-cold", cold)) {
		o.env = append(o.env, name)
	}
	o.next("scripts/cluster")
	o.begin()
	o.setup = []string{o.next("export DANUBE_BROKER=")}
	for o.typed < len(o.commands)-2 {
		o.shell(strings.ReplaceAll(o.next(""), "./danube-cluster/danube", "danube"))
	}
	if out := o.shell(strings.ReplaceAll(o.next("consume"), "./danube-cluster/danube", "danube")); strings.TrimSpace(out) != "1000" {
		t.Errorf("the count is %s", out)
	}
	o.types("scripts/cluster stop")
}

// spawnGroup is spawn for a command that starts others: all of them are one process group, ended together.
func spawnGroup(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := spawn(t, name, cmd, openLog(t, name), func(a *syscall.SysProcAttr) { a.Setpgid = true })
	t.Cleanup(func() {
		if !p.ended() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
			<-p.done
		}
	})
	return p
}

// TestReadmeGoCompiles builds the README's Go as the body of a function.
func TestReadmeGoCompiles(t *testing.T) {
	blocks := readmeBlocks(t, "From Go")
	if len(blocks) != 1 || blocks[0].language != "go" {
		t.Fatalf("the section holds %+v", blocks)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source := "package readme\nimport (\"context\"; \"fmt\"; \"github.com/danubemq/danube/client\")\n" +
		"func Use(ctx context.Context) error {\n" + blocks[0].text + "return nil\n}\n"
	overlay := fmt.Sprintf("{\"Replace\": {%q: %q}}", filepath.Join(root, "integration", "readme", "readme.go"), filepath.Join(dir, "readme.go"))
	for name, text := range map[string]string{"readme.go": source, "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", os.DevNull, "./integration/readme")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the Go of the README does not compile: %v\n%s", err, out)
	}
}
