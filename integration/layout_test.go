package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the path that every package of this tree begins with.
const module = "github.com/danubemq/danube"

// room is one package in the house: its level and the packages of this module it may import. To add a package, add
// a line to house; an arrow may only point to a lower level, or to a package of its own level that imports nothing.
type room struct {
	level int
	may   []string
	tests []string // what its tests may import besides
	// pure packages have no goroutine, clock, lock or I/O: their inputs are values.
	pure bool
}

// house is the architecture's map of allowed arrows, by path below the module.
func house() map[string]room {
	const (
		batch    = "protocol/batch"
		walk     = "protocol/msgpackwalk"
		offsets  = "meta/offsets"
		catalog  = "meta/catalog"
		records  = "meta/records"
		table    = "meta/table"
		settings = "meta/settings"
		state    = "meta/state"
		manifest = "meta/manifest"
		disk     = "storage/disk"
		segment  = "storage/segment"
		wal      = "storage/wal"
		session  = "storage/sessions"
		hotdir   = "storage/hotdir"
		journal  = "storage/journal"
		memory   = "storage/memory"
		handles  = "storage/handles"
		recovery = "storage/recovery"
		intake   = "storage/intake"
		acks     = "client/internal/acks"
		incoming = "client/internal/incoming"
		retry    = "client/internal/retry"
		socket   = "client/internal/socket"
		excerpt  = "storage/excerpt"
		extents  = "storage/extents"
		volume   = "storage/volume"
		space    = "storage/space"
		after    = "storage/aftermath"
		meters   = "storage/meters"
		words    = "broker/words"
		codes    = "broker/codes"
		calls    = "broker/calls"
		admin    = "broker/admin"
		outbox   = "broker/outbox"
		history  = "broker/history"
		delivery = "broker/delivery"
		dispatch = "broker/dispatch"
		served   = "broker/served"
		depot    = "broker/depot"
		fail     = "cmd/danube/fail"
		render   = "cmd/danube/render"
		offline  = "cmd/danube/offline"
		view     = "cmd/danube/view"
		pipe     = "cmd/danube/pipe"
		terminal = "cmd/danube/terminal"
		node     = "cmd/danube/node"
	)
	return map[string]room{
		walk:                   {level: 0, pure: true},
		batch:                  {level: 0},
		"protocol":             {level: 0, may: []string{batch, walk}},
		offsets:                {level: 0, pure: true},
		catalog:                {level: 0, pure: true},
		records:                {level: 0, pure: true},
		table:                  {level: 0, pure: true},
		settings:               {level: 0, pure: true},
		state:                  {level: 0, may: []string{walk, offsets, catalog, records, table, settings}, pure: true},
		disk:                   {level: 0},
		meters:                 {level: 0},
		extents:                {level: 0, pure: true},
		"meta":                 {level: 1, may: []string{state, walk}},
		manifest:               {level: 1, may: []string{state, records, walk}, pure: true},
		"meta/salvage":         {level: 2, may: []string{manifest, state, catalog, offsets}, pure: true},
		segment:                {level: 1, may: []string{batch, disk}},
		acks:                   {level: 1, may: []string{"protocol"}, pure: true},
		incoming:               {level: 1, may: []string{"protocol", batch}, pure: true},
		retry:                  {level: 1, may: []string{"protocol"}},
		socket:                 {level: 2, may: []string{retry, "protocol", batch}},
		"client":               {level: 3, may: []string{acks, incoming, retry, socket, "protocol", batch, walk}},
		dispatch:               {level: 1, pure: true},
		hotdir:                 {level: 1, may: []string{batch, disk}},
		memory:                 {level: 1, may: []string{batch}},
		handles:                {level: 1, may: []string{disk}},
		recovery:               {level: 2, may: []string{segment, hotdir, batch}},
		journal:                {level: 2, may: []string{segment, hotdir, batch, disk}},
		session:                {level: 2, may: []string{segment, batch}, pure: true},
		intake:                 {level: 3, may: []string{recovery, session, segment, hotdir, batch, disk}},
		excerpt:                {level: 2, may: []string{segment, batch}},
		volume:                 {level: 3, may: []string{extents, recovery, segment, hotdir, memory, handles, batch, disk}},
		space:                  {level: 1, may: []string{disk}},
		after:                  {level: 3, may: []string{journal, hotdir, disk}},
		wal:                    {level: 4, may: []string{meters, volume, space, after, intake, excerpt, extents, recovery, journal, session, segment, hotdir, memory, handles, batch, disk}},
		"storage/warm":         {level: 2, may: []string{batch}},
		"storage/cold/keys":    {level: 1, may: []string{catalog}, pure: true},
		"storage/cold/plan":    {level: 0, pure: true},
		"storage/cold/bundle":  {level: 0},
		"storage/cold/folder":  {level: 1, may: []string{disk}},
		"storage/cold/export":  {level: 5, may: []string{meters, "storage/cold", "storage/cold/keys", "storage/cold/plan", "storage/cold/bundle", excerpt, segment}, tests: []string{wal, hotdir, disk, batch, "storage/cold/upkeep", catalog}},
		"storage/cold":         {level: 2, may: []string{meters, "storage/cold/folder", "storage/cold/keys", segment, batch, disk}},
		"storage/cold/upkeep":  {level: 2, may: []string{catalog, "storage/cold/keys"}, tests: []string{state}, pure: true},
		"storage/cold/keeper":  {level: 3, may: []string{meters, "storage/cold", "storage/cold/upkeep", "storage/cold/keys", catalog, segment, batch, disk}, tests: []string{state}},
		"storage/cold/gather":  {level: 3, may: []string{"storage/cold", "storage/cold/bundle", "storage/cold/keys", catalog, segment, disk}, tests: []string{batch}},
		"storage/cold/drivers": {level: 3, may: []string{"storage/cold"}, tests: []string{"integration/objects"}},
		"storage/cold/fetch":   {level: 4, may: []string{meters, "storage/cold", "storage/cold/keys", catalog, recovery, segment, hotdir, memory, batch, disk}, tests: []string{"storage/cold/drivers", "integration/objects"}},
		"storage":              {level: 5, may: []string{wal, journal, session, hotdir, "storage/warm", "storage/cold/fetch", "storage/cold", segment, batch, disk}},
		"cluster/founding":     {level: 1, may: []string{state}, pure: true},
		"cluster/plan":         {level: 1, may: []string{state}, pure: true},
		"cluster/peer":         {level: 1, may: []string{state, walk}},
		"cluster":              {level: 2, may: []string{"cluster/founding", "cluster/plan", "cluster/peer", "meta", state}},
		words:                  {level: 1, may: []string{state, "protocol"}, tests: []string{catalog}, pure: true},
		"broker/web":           {level: 1, may: []string{"protocol"}},
		calls:                  {level: 3, may: []string{"cluster", "meta", state, "protocol"}},
		admin:                  {level: 4, may: []string{calls, words, "cluster", "meta", state, "protocol"}},
		outbox:                 {level: 6, may: []string{"storage", "protocol"}, tests: []string{batch}},
		history:                {level: 6, may: []string{calls, "storage", "storage/cold/fetch", "storage/cold", "cluster", "meta", catalog, state, "protocol", batch}},
		depot:                  {level: 7, may: []string{calls, "broker/herald", "storage", "storage/cold/export", "storage/cold/fetch", "storage/cold/keeper", "storage/cold/upkeep", "storage/cold/plan", "storage/cold/keys", "storage/cold", excerpt, segment, disk, "meta", catalog, state}, tests: []string{batch}},
		delivery:               {level: 7, may: []string{history, outbox, dispatch, words, "storage", "meta", state, "protocol", batch}},
		codes:                  {level: 7, may: []string{history, dispatch, "storage", "meta", state, "protocol"}},
		"broker/herald":        {level: 6, may: []string{manifest, state, "storage/cold", "storage/cold/keys"}},
		served:                 {level: 8, may: []string{delivery, history, outbox, calls, words, "storage", "meta", state, "protocol", batch}},
		"broker":               {level: 9, may: []string{codes, served, delivery, depot, history, outbox, admin, "broker/web", calls, words, dispatch, "storage", "storage/cold", "storage/cold/upkeep", segment, disk, "cluster", "meta", state, "protocol", batch}, tests: []string{"client", catalog}},
		fail:                   {level: 4, may: []string{"client", "protocol"}},
		render:                 {level: 5, may: []string{fail}},
		offline:                {level: 6, may: []string{fail, render, "storage", "storage/cold", "storage/cold/bundle", "storage/cold/gather", "storage/cold/keys", segment, disk, "meta/salvage", manifest, catalog, state}, tests: []string{batch}},
		view:                   {level: 6, may: []string{render, "cmd/danube/settings", "protocol"}},
		terminal:               {level: 0},
		pipe:                   {level: 6, may: []string{fail, render, terminal, "cmd/danube/settings", "client", "protocol", batch}},
		"cmd/danube/settings":  {level: 4},
		"cmd/danube/bench":     {level: 4, may: []string{"client", "protocol"}},
		"cmd/danube/faults":    {level: 4, may: []string{disk}},
		node:                   {level: 10, may: []string{fail, "cmd/danube/settings", "broker", "storage", "storage/cold/drivers", disk, state}},
		"cmd/danube":           {level: 11, may: []string{node, pipe, offline, view, terminal, fail, render, "cmd/danube/settings", "cmd/danube/bench", "cmd/danube/faults", "broker", "client", "storage", "storage/cold", "storage/cold/drivers", "storage/cold/gather", wal, segment, disk, "meta", "meta/salvage", state, "protocol", batch}, tests: []string{"integration/objects", "storage/cold/bundle", "storage/cold/fetch", "storage/cold/keys", manifest, catalog}},
		"integration":          {level: 10, may: []string{"broker", "client", "integration/history", "integration/objects", "protocol", batch}},
		"integration/history":  {level: 0},
		"integration/objects":  {level: 0},
		"integration/planted":  {level: 0},
	}
}

// impure lists what a pure package does not import: the clock is an argument, so time itself is allowed.
func impure() []string {
	return []string{"os", "net", "net/http", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "io/fs", "os/exec", "syscall"}
}

// listed is what `go list -json` says of a package, as far as the rules need it.
type listed struct {
	ImportPath   string
	Name         string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// TestRuleArrowsPointDown fails on a package that house does not know and on an import it does not allow.
func TestRuleArrowsPointDown(t *testing.T) {
	for _, complaint := range judgeArrows(house(), listPackages(t)) {
		t.Error(complaint)
	}
}

// TestRuleHouseStands checks the map itself: every arrow of it points down.
func TestRuleHouseStands(t *testing.T) {
	for _, complaint := range judgeHouse(house()) {
		t.Error(complaint)
	}
}

func judgeHouse(rooms map[string]room) []string {
	var out []string
	for path, r := range rooms {
		for _, to := range slices.Concat(r.may, r.tests) {
			target, known := rooms[to]
			switch {
			case !known:
				out = append(out, fmt.Sprintf("%s may import %s, which is no room of the house", path, to))
			case target.level > r.level, target.level == r.level && len(target.may) > 0:
				out = append(out, fmt.Sprintf("the arrow %s (level %d) to %s (level %d) does not point down", path, r.level, to, target.level))
			}
		}
	}
	slices.Sort(out)
	return out
}

func judgeArrows(rooms map[string]room, packages []listed) []string {
	var out []string
	for _, p := range packages {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		r, known := rooms[path]
		if !known {
			out = append(out, fmt.Sprintf("package %s is in no room of the house: add it to integration/layout_test.go with its level and arrows", path))
			continue
		}
		if p.Doc == "" {
			out = append(out, fmt.Sprintf("package %s has no package comment", path))
		}
		// Tests obey the same arrows, and may import their own package by name.
		out = append(out, judgeImports(path, p.Imports, r.may)...)
		for _, imports := range [][]string{p.TestImports, p.XTestImports} {
			out = append(out, judgeImports(path, imports, slices.Concat(r.may, r.tests))...)
		}
		if !r.pure {
			continue
		}
		for _, std := range p.Imports {
			if slices.Contains(impure(), std) {
				out = append(out, fmt.Sprintf("%s imports %s, but it is a pure package: no goroutine, clock, lock or I/O", path, std))
			}
		}
	}
	return out
}

func judgeImports(path string, imports, may []string) []string {
	var out []string
	for _, full := range imports {
		to, ours := strings.CutPrefix(full, module+"/")
		if ours && to != path && !slices.Contains(may, to) {
			out = append(out, fmt.Sprintf("%s imports %s: the house allows it %v", path, to, may))
		}
	}
	return out
}

func listPackages(t testing.TB) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Doc,Imports,TestImports,XTestImports", module+"/...")
	cmd.Dir = ".."
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v\n%s", err, complaint.String())
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode package list: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list names no package: the rules looked at nothing")
	}
	return packages
}

// TestJudgeArrowsFindsViolations holds the judge to each of its sentences.
func TestJudgeArrowsFindsViolations(t *testing.T) {
	rooms := map[string]room{
		"low":  {level: 0, pure: true},
		"high": {level: 1, may: []string{"low"}},
		"mid":  {level: 1, tests: []string{"low"}},
	}
	tests := map[string]struct {
		p    listed
		want string
	}{
		"allowed":         {listed{ImportPath: module + "/high", Doc: "d", Imports: []string{module + "/low", "os"}}, ""},
		"unknown package": {listed{ImportPath: module + "/attic", Doc: "d"}, "in no room"},
		"no comment":      {listed{ImportPath: module + "/low"}, "no package comment"},
		"arrow up":        {listed{ImportPath: module + "/low", Doc: "d", Imports: []string{module + "/high"}}, "low imports high"},
		"arrow in a test": {listed{ImportPath: module + "/low", Doc: "d", XTestImports: []string{module + "/high"}}, "low imports high"},
		"only in tests":   {listed{ImportPath: module + "/mid", Doc: "d", Imports: []string{module + "/low"}}, "mid imports low"},
		"in its test":     {listed{ImportPath: module + "/mid", Doc: "d", TestImports: []string{module + "/low"}}, ""},
		"own name":        {listed{ImportPath: module + "/low", Doc: "d", XTestImports: []string{module + "/low"}}, ""},
		"impure":          {listed{ImportPath: module + "/low", Doc: "d", Imports: []string{"sync"}}, "pure package"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(judgeArrows(rooms, []listed{test.p}), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("judged %q, want %q", got, test.want)
			}
		})
	}
	up := map[string]room{"a": {level: 0, may: []string{"b"}}, "b": {level: 1}}
	if got := judgeHouse(up); len(got) != 1 {
		t.Errorf("a house with an arrow up is judged %q", got)
	}
}
