package protocol

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is docs/protocol.md, which these tests hold to the code.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// table returns the cells of the first table behind anchor whose head begins with head.
func table(t *testing.T, text, anchor, head string) [][]string {
	t.Helper()
	_, rest, ok := strings.Cut(text, anchor)
	if !ok {
		t.Fatalf("the page has no %q", anchor)
	}
	at := strings.Index(rest, "\n| "+head)
	if at < 0 {
		t.Fatalf("no table %q behind %q", head, anchor)
	}
	var rows [][]string
	for line := range strings.Lines(rest[at+1:]) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[2:] // below the head and its rule
}

func TestPageHasTheErrorTable(t *testing.T) {
	yes := map[bool]string{true: "yes", false: "no"}
	var want [][]string
	for _, c := range codes() {
		m := c.Meaning()
		want = append(want, []string{fmt.Sprint(uint16(c)), m.Name, m.Text, yes[m.Retriable], yes[m.NotStored], m.Action.String()})
	}
	compareRows(t, table(t, page(t), "## Errors", "code"), want)
}

func compareRows(t *testing.T, got, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("the page has %d rows, the code %d", len(got), len(want))
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("the page says %q, the code %q", got[i], want[i])
		}
	}
}

func TestPageHasEveryFrameType(t *testing.T) {
	rows := table(t, page(t), "## Frames", "type | name")
	var got, want []string
	for _, row := range rows {
		got = append(got, row[0]+" "+row[1])
	}
	for i, name := range typeNames {
		if name != "" {
			want = append(want, fmt.Sprintf("%d %s", i, name))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has %q, the code %q", got, want)
	}
}

func TestPageHasTheKeyVectors(t *testing.T) {
	var got, want [][]string
	for _, row := range table(t, page(t), "### Which partition", "key") {
		got = append(got, []string{row[0], row[2], row[3], row[4], row[5]})
	}
	for _, v := range vectors(t) {
		p := v.Partitions
		want = append(want, []string{v.Name, "`" + v.Hash + "`", fmt.Sprint(p["3"]), fmt.Sprint(p["10"]), fmt.Sprint(p["12"])})
	}
	compareRows(t, got, want)
}

// keys returns the keys of a struct in order, those of what it embeds first.
func keys(of reflect.Type) []string {
	var out []string
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			out = append(out, keys(f.Type)...)
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		out = append(out, "`"+tag+"`")
	}
	return out
}

func TestPageHasEveryField(t *testing.T) {
	text := page(t)
	check := func(anchor string, of reflect.Type) {
		t.Helper()
		var got []string
		for _, row := range table(t, text, anchor, "key") {
			got = append(got, row[0])
		}
		if want := keys(of); !slices.Equal(got, want) {
			t.Errorf("behind %q the page has %q, %s has %q", anchor, got, of, want)
		}
	}
	for _, s := range samples(t) {
		if s.header != nil && s.typ != TypeGoAway { // which has the header of ERROR
			check(fmt.Sprintf("\n### %s (%d)\n", s.typ, s.typ), reflect.TypeOf(s.header).Elem())
		}
	}
	check("The settings,", reflect.TypeFor[TopicConfig]())
	check("The options,", reflect.TypeFor[SubOptions]())
}

func TestPageHasEveryOperation(t *testing.T) {
	var source []byte
	for _, name := range []string{"admin.go", "admin_cluster.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, b...)
	}
	var want [][]string
	for _, m := range regexp.MustCompile(`Op\w+\s+= "([\w.]+)"\s+// (\w+) → (\w+)`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, []string{"`" + m[1] + "`", m[2], m[3]})
	}
	if len(want) < 10 {
		t.Fatalf("%d operations found", len(want))
	}
	compareRows(t, table(t, page(t), "## Administration", "operation"), want)
}

// Each example names its golden file; the bytes before the notes are the file's.
func TestPageShowsTheGoldenBytes(t *testing.T) {
	blocks := regexp.MustCompile("`protocol/(testdata/[^`]+)`:\n\n```\n([^`]*)```").FindAllStringSubmatch(page(t), -1)
	if len(blocks) < 10 {
		t.Fatalf("%d examples found", len(blocks))
	}
	for _, block := range blocks {
		want, err := os.ReadFile(filepath.FromSlash(block[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		var got strings.Builder
		for line := range strings.Lines(block[2]) {
			bytes, _, _ := strings.Cut(line, "|")
			got.WriteString(strings.Join(strings.Fields(bytes), ""))
		}
		if b, err := hex.DecodeString(got.String()); err != nil || dump(b) != string(want) {
			t.Errorf("the page shows other bytes than %s: %v", block[1], err)
		}
	}
}
