//go:build linux

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// page is one section of the runbook: what it says the operator will read, and what to type.
type page struct {
	title    string
	quotes   []string // in backquotes in the text, in order
	commands []string // the lines of its blocks, in order, without comments
}

// readRunbook takes the runbook apart: what is set before all, and its sections.
func readRunbook(t testing.TB) (setup []string, pages []page) {
	t.Helper()
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	intro, rest, _ := strings.Cut(string(text), "\n## ")
	_, setup = takeApart(intro)
	for section := range strings.SplitSeq(rest, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		p := page{title: title}
		p.quotes, p.commands = takeApart(body)
		pages = append(pages, p)
	}
	return setup, pages
}

var quoted = regexp.MustCompile("`([^`]+)`")

// takeApart finds the quotes and the commands of a text. What is quoted is what somebody reads or types, if it has more
// than one word: a single one names a flag, a folder or a state.
func takeApart(text string) (quotes, commands []string) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			language, body, _ := strings.Cut(part, "\n")
			commands = append(commands, commandsOf(block{language, body})...)
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(part, -1) {
			if q := strings.Join(strings.Fields(m[1]), " "); strings.Contains(q, " ") {
				quotes = append(quotes, q)
			}
		}
	}
	return quotes, commands
}

// operator is who has three brokers of scripts/cluster, a breakage, and one section of the runbook. Everything typed is
// what the page says; only addresses and the folder are the test's own.
type operator struct {
	*fleet
	page
	setup []string
	dir   string // danube-cluster of the page
	net   string // 127.0.0 of the page
	env   []string

	typed int             // commands of the page so far
	other bool            // n1 of the page is n2 here, and n2 n1
	seen  map[string]bool // quotes of the page that were found

	from time.Time
	last string // the line before
}

// newOperator prepares three brokers and starts none.
func newOperator(t testing.TB, p page, setup []string, kind build) *operator {
	t.Helper()
	o := &operator{page: p, setup: setup, dir: filepath.Join(t.TempDir(), "danube-cluster"), seen: map[string]bool{}, from: time.Now()}
	o.fleet = newFleet(t, 3, options{build: &kind})
	for _, b := range o.brokers {
		b.dir = filepath.Join(o.dir, b.name)
	}
	o.net = strings.TrimSuffix(o.brokers[0].host, ".11")
	bin := t.TempDir()
	if err := os.Symlink(programs.path(t, build{}), filepath.Join(bin, "danube")); err != nil {
		t.Fatal(err)
	}
	// What is typed is the plain build: it is started often.
	o.env = append(o.brokers[0].environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DANUBE="+o.brokers[0].program, "CLUSTER_DIR="+o.dir, "CLUSTER_NET="+o.net)
	return o
}

// begin starts the three brokers and sees to it that none outlives the test, even if the test's process dies: who ends them
// waits for the end of its standard input.
func (o *operator) begin() {
	o.t.Helper()
	guard := o.command(context.Background(), "cat; for n in n1 n2 n3; do scripts/cluster kill $n; done")
	hold, err := guard.StdinPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		hold.Close()
		_ = guard.Wait() // fails where a broker is down already
		o.look()
	})
	o.shell("scripts/cluster start")
	o.settings()
}

// look shows what brokers wrote if the test failed, and fails it for a data race in one.
func (o *operator) look() {
	for _, b := range o.brokers {
		log := b.dir + ".log"
		if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "WARNING: DATA RACE") {
			o.t.Errorf("%s had a data race:\n%s", b.name, text)
		}
		if o.t.Failed() {
			o.t.Logf("last lines of %s:\n%s", b.name, lastLines(log, 20))
		}
	}
}

// settings learns where the brokers say that they listen.
func (o *operator) settings() {
	for _, b := range o.brokers {
		text, err := os.ReadFile(b.dir + ".out")
		if err != nil {
			o.t.Fatal(err)
		}
		b.ready = parseReady(strings.TrimSpace(string(text)))
	}
}

// own is a line of the page with the addresses and the folder of this test.
func (o *operator) own(line string) string {
	if o.other {
		line = strings.NewReplacer("n1", "n2", "n2", "n1").Replace(line)
	}
	return strings.NewReplacer("danube-cluster/", o.dir+"/", "127.0.0.", o.net+".").Replace(line)
}

func (o *operator) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", o.own(strings.Join(append(slices.Clone(o.setup), line), "\n")))
	cmd.Dir, cmd.Env = "..", o.env
	return cmd
}

// try runs one line where the page is read, in the root of the repository.
func (o *operator) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), runWithin)
	defer cancel()
	out, err := o.command(ctx, line).CombinedOutput()
	if line != o.last { // one of a row of looks
		o.t.Logf("%v: %s", time.Since(o.from).Round(100*time.Millisecond), o.own(line))
		o.last = line
	}
	return string(out), err
}

// shell is try for a line that has to succeed.
func (o *operator) shell(line string) string {
	o.t.Helper()
	out, err := o.try(line)
	if err != nil {
		o.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// next is the command that the page has next, which must be about what the test expects there.
func (o *operator) next(about string) string {
	o.t.Helper()
	if o.typed == len(o.commands) {
		o.t.Fatalf("the page has no command left where %q was expected", about)
	}
	line := o.commands[o.typed]
	if !strings.Contains(line, about) {
		o.t.Fatalf("the page says %q where %q was expected", line, about)
	}
	o.typed++
	return line
}

// types types the page's next command, which has to succeed.
func (o *operator) types(about string) string {
	o.t.Helper()
	return o.shell(o.next(about))
}

// awaits types the page's next command until it prints all that is wanted, and returns that.
func (o *operator) awaits(about string, want ...string) string {
	o.t.Helper()
	return o.prints(o.next(about), want...)
}

// reads is what status prints, which must become what the page quotes.
func (o *operator) reads(quotes ...string) string {
	o.t.Helper()
	for _, q := range quotes {
		o.quote(q)
	}
	return o.prints("danube cluster status", quotes...)
}

// quote notes that something the page quotes is found now; a quote is given as it stands on the page.
func (o *operator) quote(q string) {
	o.t.Helper()
	if !slices.Contains(o.quotes, q) {
		o.t.Fatalf("the page does not quote %q; it quotes %q", q, o.quotes)
	}
	o.seen[q] = true
}

var figures = regexp.MustCompile(`\d+ `)

// prints runs a command until it prints all that is wanted, whatever its spaces and figures.
func (o *operator) prints(line string, want ...string) (text string) {
	o.t.Helper()
	var all []*regexp.Regexp
	for _, w := range want {
		all = append(all, regexp.MustCompile(figures.ReplaceAllString(regexp.QuoteMeta(o.own(w)), `\d+ `)))
	}
	o.until(func() string {
		out, err := o.try(line)
		if err != nil {
			return fmt.Sprintf("%s: %v\n%s", line, err, out)
		}
		text = out
		flat := strings.Join(strings.Fields(out), " ")
		for i, w := range all {
			if !w.MatchString(flat) {
				return fmt.Sprintf("%s does not print %q but\n%s", line, want[i], out)
			}
		}
		return ""
	})
	return text
}

// until is nothingMissing for what starts programs: it asks less often.
func (o *operator) until(missing func() string) {
	o.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	nothingMissing(o.t, readyWithin, func() string {
		<-tick.C
		return missing()
	})
}

// machineDisk is what status says of the disk of the machine that runs the tests, which is not their matter.
var machineDisk = regexp.MustCompile(`^degraded +disk \d+ % full`)

// well waits until status says that all are ready and nothing is degraded.
func (o *operator) well() {
	o.t.Helper()
	o.until(func() string {
		out, err := o.try("danube cluster status")
		if err != nil {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		if !regexp.MustCompile(`(?m)^ready +yes$`).MatchString(out) {
			return "not ready:\n" + out
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "degraded ") && !machineDisk.MatchString(line) {
				return out
			}
		}
		return ""
	})
}

// done fails the test if the page says something that was not shown or typed.
func (o *operator) done() {
	o.t.Helper()
	if left := o.commands[o.typed:]; len(left) > 0 {
		o.t.Errorf("of the page nobody typed %q", left)
	}
	for _, q := range o.quotes {
		if !o.seen[q] {
			o.t.Errorf("of the page nobody saw %q", q)
		}
	}
}

// TestRunbook makes every breakage of the runbook with real processes and mends it with what the page says, word for word:
// a section, a quote or a command that is not tried makes it fail.
func TestRunbook(t *testing.T) {
	t.Parallel()
	type section struct {
		build build
		run   func(*operator)
	}
	cases := map[string]section{
		"Stuck move":     {*faulty(), stuckMove},
		"Dead broker":    {raced(), deadBroker},
		"Dead disk":      {raced(), deadDisk},
		"Lost majority":  {raced(), lostMajority},
		"Full disk":      {raced(), fullDisk},
		"Orphaned range": {raced(), orphanedRange},
	}
	setup, pages := readRunbook(t)
	for _, p := range pages {
		c, ok := cases[p.title]
		if !ok {
			t.Errorf("section %q has no test", p.title)
			continue
		}
		delete(cases, p.title)
		t.Run(p.title, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t, p, setup, c.build)
			c.run(o)
			o.done()
		})
	}
	for title := range cases {
		t.Errorf("the runbook has no section %q", title)
	}
}
