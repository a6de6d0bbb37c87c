package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// line is one figure of the report.
type line struct {
	work, figure, bound, mode string
	ours, theirs              float64 // medians
	ratio, smallest, largest  float64
	paired, measured, reached bool
	note                      string
}

// judge makes one line of a row's runs: the median of the ratios of its pairs, or of ours alone.
func judge(r row, g goal, mode string, us, them []result) line {
	l := line{work: r.work, figure: g.figure, mode: mode}
	alone := r.theirs == nil && r.best == nil
	switch {
	case g.least > 0:
		l.bound = fmt.Sprintf("at least %g", g.least)
	case g.most > 0:
		l.bound = fmt.Sprintf("at most %g", g.most)
	}
	if !alone && l.bound != "" {
		l.bound += " times"
	}
	l.ours, l.theirs = medianOf(values(us, g)), medianOf(values(them, g))
	var ratios []float64
	for i := range min(len(us), len(them)) {
		ratios = append(ratios, g.of(us[i])/g.of(them[i]))
	}
	judged := l.ours
	switch {
	case alone:
		l.measured = len(us) > 0
	case len(ratios) > 0:
		l.measured, l.paired = true, true
		l.ratio, l.smallest, l.largest = medianOf(ratios), slices.Min(ratios), slices.Max(ratios)
		judged = l.ratio
	}
	l.reached = l.measured && (g.least == 0 || judged >= g.least) && (g.most == 0 || judged <= g.most)
	return l
}

func values(all []result, g goal) []float64 {
	var out []float64
	for _, r := range all {
		out = append(out, g.of(r))
	}
	return out
}

// medianOf is 0 for nothing.
func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// report is everything that a comparison found.
type report struct {
	settings settings
	args     []string
	plain    []plainFigure
	lines    []line
	note     string
}

// markdown prints the report such that it can be pasted into docs/benchmarks.md.
func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s with `scripts/bench-peers %s`: %d pairs, %d MiB a run.\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		strings.Join(shownArgs(r.args), " "), r.settings.pairs, r.settings.bytes>>20)
	fmt.Fprintf(&b, "Machine: %s.\n\n", machine())
	fmt.Fprint(&b, "| work | figure | to reach | ratio: median (smallest–largest) | ours | theirs | |\n|---|---|---|---|---|---|---|\n")
	for _, l := range r.lines {
		ratio, verdict := "", "not measured"
		if l.paired {
			ratio = fmt.Sprintf("%.2f (%.2f–%.2f)", l.ratio, l.smallest, l.largest)
		}
		switch {
		case l.measured && l.bound == "":
			verdict = "reported"
		case l.reached:
			verdict = "reached"
		case l.measured:
			verdict = "**not reached**"
		}
		if l.note != "" {
			verdict += ": " + strings.ReplaceAll(strings.TrimPrefix(l.note, "· "), "|", "/")
		}
		theirs := number(l.theirs)
		if l.mode != "" {
			theirs += " (" + l.mode + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", l.work, l.figure, l.bound, ratio, number(l.ours), theirs, verdict)
	}
	fmt.Fprint(&b, "\n| the bare machine, same run | |\n|---|---|\n")
	for _, p := range r.plain {
		fmt.Fprintf(&b, "| %s | %s |\n", p.what, p.figure)
	}
	if r.note != "" {
		fmt.Fprintf(&b, "\n%s\n", r.note)
	}
	return b.String()
}

// shownArgs leaves out the paths of programs and folders, which differ from machine to machine.
func shownArgs(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch strings.TrimLeft(args[i], "-") {
		case "danube", "nats-server", "ceiling", "work", "markdown":
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}

func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}

// machine names processor, cores, memory and kernel.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	var info syscall.Sysinfo_t
	memory := ""
	if err := syscall.Sysinfo(&info); err == nil {
		memory = fmt.Sprintf(", %d GiB", uint64(info.Totalram)*uint64(info.Unit)>>30)
	}
	kernel := ""
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = ", Linux " + strings.TrimSpace(string(text))
	}
	return fmt.Sprintf("%s, %d cores%s%s, %s", model, runtime.NumCPU(), memory, kernel, runtime.Version())
}
