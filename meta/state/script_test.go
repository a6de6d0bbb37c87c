package state

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
)

var update = flag.Bool("update", false, "rewrite testdata with what was observed")

// TestScripts runs testdata/*.txt: a block of commands, "----", what they answered. Ids are small numbers.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc := &script{t: t, s: New(), contents: map[catalog.Name][]byte{}}
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(string(b), "\n"), "\n\n") {
		commands, want, _ := strings.Cut(block, "\n----")
		var got strings.Builder
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				got.WriteString(sc.run(line))
			}
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", commands, got.String())
		if want = strings.TrimPrefix(want, "\n"); !*update && strings.TrimRight(want, "\n") != strings.TrimRight(got.String(), "\n") {
			t.Errorf("%s\n---- got\n%s---- want\n%s", commands, got.String(), want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.TrimRight(out.String(), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type script struct {
	t        *testing.T
	s        *State
	index    uint64
	contents map[catalog.Name][]byte // of pages' objects
}

// args are the key=value words of a line.
type args struct {
	t *testing.T
	m map[string]string
}

func (a args) num(key string) uint64 {
	v, ok := a.m[key]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		a.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

func (a args) nums(key string) (l []uint64) {
	for v := range strings.SplitSeq(a.m[key], ",") {
		n, err := strconv.ParseUint(v, 10, 64)
		if err == nil {
			l = append(l, n)
		}
	}
	return l
}

func (a args) pairs(key, sep string) (l [][2]uint64) {
	if a.m[key] == "" {
		return nil
	}
	for v := range strings.SplitSeq(a.m[key], ",") {
		x, y, _ := strings.Cut(v, sep)
		p := args{a.t, map[string]string{"x": x, "y": y}}
		l = append(l, [2]uint64{p.num("x"), p.num("y")})
	}
	return l
}

func (a args) has(key string) bool { _, ok := a.m[key]; return ok }

func topicID(n uint64) TopicID { return TopicID{15: byte(n), 14: byte(n >> 8)} }
func storeID(n uint64) StoreID { return StoreID{15: byte(n)} }

func (sc *script) owner(n uint64) Owner {
	o := Owner{Store: storeID(n)}
	if st := sc.s.Store(o.Store); st != nil {
		o.Incarnation = st.Incarnation
	}
	return o
}

func word(words map[string]uint8, w string) uint8 { return words[w] }

var (
	levels   = map[string]uint8{"none": 0, "local": 1, "warm": 2, "object": 3}
	tails    = map[string]uint8{"proven": 0, "gap": 1, "lost": 2, "orphaned": 3}
	statuses = map[string]uint8{"OPEN": 0, "SEALED": 1, "ORPHANED": 2, "LOST": 3}
)

func (sc *script) run(line string) string {
	words := strings.Fields(line)
	a := args{sc.t, map[string]string{}}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		a.m[k] = v
	}
	switch words[0] {
	case "show":
		return sc.show(a)
	case "restart":
		// A snapshot and back, which must lose nothing.
		var b bytes.Buffer
		if _, err := sc.s.WriteTo(&b); err != nil {
			sc.t.Fatal(err)
		}
		s, err := Restore(&b)
		if err != nil {
			sc.t.Fatal(err)
		}
		if s.Hash() != sc.s.Hash() || s.Index() != sc.s.Index() {
			sc.t.Fatalf("restored state differs")
		}
		sc.s = s
		return ""
	}
	c := sc.command(words[0], a)
	if c == nil {
		sc.t.Fatalf("unknown command %q", line)
	}
	b, err := Encode(c)
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.index++
	return formatResult(words[0], sc.s.ApplyBytes(sc.index, b))
}

func (sc *script) command(name string, a args) Command {
	topic, part := topicID(a.num("topic")), uint32(a.num("partition"))
	switch name {
	case "cluster":
		return &InitCluster{ID: [16]byte{byte(a.num("id"))}, Name: a.m["name"]}
	case "register":
		return &RegisterStore{Store: storeID(a.num("store")), Broker: a.m["broker"], Nonce: [16]byte{byte(a.num("nonce"))}}
	case "set-store":
		return &SetStore{Owner: Owner{storeID(a.num("store")), a.num("incarnation")}, Status: StoreStatus(a.num("status")), Clean: a.has("clean")}
	case "create-namespace":
		return &CreateNamespace{Name: a.m["name"], Limits: Limits{Producers: a.num("producers")}}
	case "set-namespace":
		return &SetNamespace{Name: a.m["name"], Limits: Limits{Producers: a.num("producers")}}
	case "delete-namespace":
		return &DeleteNamespace{Name: a.m["name"]}
	case "create", "set-topic":
		l := Level(word(levels, a.m["level"]))
		set := TopicSettings{Partitions: uint32(a.num("partitions")), Reliable: l > 0, Durability: l, RetentionTime: time.Duration(a.num("hours")) * time.Hour}
		if name == "set-topic" {
			return &SetTopic{ID: topic, Settings: set}
		}
		c := &CreateTopic{ID: topic, Name: a.m["name"], Settings: set, At: 1}
		for _, o := range a.nums("owners") {
			c.Owners = append(c.Owners, sc.owner(o))
		}
		return c
	case "delete":
		return &DeleteTopic{ID: topic, At: 2}
	case "purge":
		return &PurgeTopic{ID: topic, Store: storeID(a.num("store"))}
	case "open":
		return &OpenPartitions{Owner: sc.named("store", a), Entries: []PartitionOpen{
			{Topic: topic, Partition: part, Epoch: a.num("epoch"), End: a.num("end"), Tail: Tail(word(tails, a.m["tail"]))},
		}}
	case "update":
		return &UpdatePartitions{Entries: []PartitionUpdate{{
			Topic: topic, Partition: part, Epoch: a.num("epoch"), Ceiling: a.num("ceiling"), Floor: a.num("floor"),
			LogStart: a.num("start"), Seal: a.has("seal"), End: a.num("end"), At: int64(a.num("at")), Acked: a.has("acked"),
		}}}
	case "mark":
		return &MarkRanges{Entries: []RangeMark{{
			Topic: topic, Partition: part, Epoch: a.num("epoch"), From: a.num("from"), To: a.num("to"),
			Status: RangeStatus(word(statuses, a.m["status"])), Accepted: a.has("accepted"),
		}}}
	}
	if c := sc.ownerCommand(name, a); c != nil {
		return c
	}
	if c := sc.coldCommand(name, a); c != nil {
		return c
	}
	return sc.cursorCommand(name, a)
}

// named returns the run of a store that key names: the latest, or the one of "incarnation".
func (sc *script) named(key string, a args) Owner {
	o := sc.owner(a.num(key))
	if a.has("incarnation") {
		o.Incarnation = a.num("incarnation")
	}
	return o
}

func (sc *script) ownerCommand(name string, a args) Command {
	topic, part, epoch := topicID(a.num("topic")), uint32(a.num("partition")), a.num("epoch")
	ids := func(key string) (l []StoreID) {
		for _, n := range a.nums(key) {
			l = append(l, storeID(n))
		}
		return l
	}
	switch name {
	case "lose":
		return &LoseStore{Owner: sc.named("store", a)}
	case "remove":
		return &RemoveStore{Store: storeID(a.num("store")), Lose: a.has("lose")}
	case "grant":
		return &GrantPartitions{Entries: []PartitionGrant{{topic, part, epoch, sc.named("to", a)}}}
	case "begin-move":
		return &MovePartitions{Entries: []PartitionMove{{topic, part, epoch, sc.named("to", a)}}}
	case "abort":
		return &AbortMoves{Entries: []MoveAbort{{topic, part, epoch, a.num("move")}}}
	case "hand-over":
		move := a.num("move")
		if p := sc.s.Partition(topic, part); p != nil && !a.has("move") {
			move = p.Move
		}
		return &HandOver{Owner: sc.owner(a.num("store")), Entries: []PartitionHandOver{{topic, part, epoch, move, a.num("end"), sc.named("to", a)}}}
	case "copy":
		return &CopyRanges{Entries: []RangeCopy{{topic, part, epoch, a.num("from"), a.num("to"), storeID(a.num("add")), ids("drop")}}}
	case "restore":
		c := &RestoreRange{
			Topic: topic, Partition: part, Epoch: epoch, From: a.num("from"), End: a.num("end"), To: a.num("to"),
			Stores: ids("stores"), Adopt: a.has("adopt"),
		}
		for _, p := range a.pairs("superseded", "-") {
			c.Superseded = append(c.Superseded, OffsetRange{Start: p[0], End: p[1]})
		}
		return c
	case "history":
		return &NewHistory{History: uint16(a.num("number"))}
	case "tick":
		return &Tick{}
	}
	return nil
}

func (sc *script) cursorCommand(name string, a args) Command {
	switch name {
	case "subscribe":
		return &CreateSubscription{
			Topic: topicID(a.num("topic")), Name: a.m["name"], Type: SubscriptionType(a.num("type")),
			Options: SubscriptionOptions{MaxUnacked: uint32(a.num("unacked")), DeadLetter: a.m["dead-letter"]}, Start: a.nums("start"),
		}
	case "set-subscription":
		return &SetSubscription{Subscription: a.num("id"), Options: SubscriptionOptions{MaxUnacked: uint32(a.num("unacked"))}}
	case "unsubscribe":
		return &DeleteSubscription{Subscription: a.num("id")}
	case "reset":
		c := &ResetSubscription{Subscription: a.num("id")}
		for _, p := range a.pairs("to", "@") {
			c.Entries = append(c.Entries, CursorReset{Partition: uint32(p[0]), Start: p[1], Generation: a.num("generation")})
		}
		return c
	case "move":
		d := CursorDelta{
			Subscription: a.num("id"), Partition: uint32(a.num("partition")), Epoch: a.num("epoch"),
			Generation: a.num("generation"), Prefix: a.num("prefix"),
		}
		for _, p := range a.pairs("acked", "-") {
			d.Acked = append(d.Acked, OffsetRange{Start: p[0], End: p[1]})
		}
		for _, p := range a.pairs("counts", ":") {
			d.Counts = append(d.Counts, OffsetNumber{Offset: p[0], Number: p[1]})
		}
		for _, p := range a.pairs("due", ":") {
			d.Due = append(d.Due, OffsetNumber{Offset: p[0], Number: p[1]})
		}
		return &MoveCursors{Entries: []CursorDelta{d}}
	}
	return nil
}

func formatResult(what string, r Result) string {
	var b strings.Builder
	b.WriteString(what + ":")
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, " %v", r.Err)
	case r.Entry(0) != nil:
		fmt.Fprintf(&b, " entry 0: %v", r.Entry(0))
	default:
		b.WriteString(" ok")
	}
	if r.Incarnation > 0 {
		fmt.Fprintf(&b, " incarnation=%d", r.Incarnation)
	}
	if r.Topic != (TopicID{}) {
		fmt.Fprintf(&b, " topic=%d", r.Topic[15])
	}
	if r.Subscription > 0 {
		fmt.Fprintf(&b, " subscription=%d", r.Subscription)
	}
	if r.Created {
		b.WriteString(" created")
	}
	return b.String() + "\n"
}

func (sc *script) show(a args) string {
	var b strings.Builder
	if a.has("topics") {
		for t := range sc.s.Topics(a.m["prefix"]) {
			fmt.Fprintf(&b, "topic %d %s partitions=%d level=%s\n", t.ID[15], t.Name, t.Settings.Partitions, t.Settings.Durability)
		}
		for t := range sc.s.Tombstones() {
			fmt.Fprintf(&b, "tombstone %d %s\n", t.ID[15], t.Name)
		}
	}
	if a.has("topic") {
		for p := range sc.s.Partitions(topicID(a.num("topic"))) {
			b.WriteString(formatPartition(p) + formatCatalog(p))
		}
		for sub := range sc.s.Subscriptions(topicID(a.num("topic"))) {
			b.WriteString(formatSubscription(sub))
		}
	}
	if a.has("stores") {
		for st := range sc.s.Stores() {
			fmt.Fprintf(&b, "store %d broker=%s incarnation=%d %s clean=%t\n", st.ID[15], st.Broker, st.Incarnation, st.Status, st.Clean)
		}
	}
	if a.has("owned") {
		for p := range sc.s.Owned(storeID(a.num("owned"))) {
			fmt.Fprintf(&b, "owned %d:%d\n", p.Topic[15], p.Number)
		}
	}
	if a.has("held") {
		for p := range sc.s.Held(storeID(a.num("held"))) {
			fmt.Fprintf(&b, "held %d:%d\n", p.Topic[15], p.Number)
		}
	}
	b.WriteString(sc.showCold(a))
	if a.has("placed") {
		for st := range sc.s.Stores() {
			fmt.Fprintf(&b, "placed %d: %d\n", st.ID[15], sc.s.Placed(st.ID))
		}
	}
	return b.String()
}

func formatPartition(p *Partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "partition %d:%d epoch=%d owner=%d/%d %s %s start=%d floor=%d ceiling=%d", p.Topic[15], p.Number,
		p.Epoch, p.Owner.Store[15], p.Owner.Incarnation, p.State, p.Level, p.LogStart, p.Floor, p.Ceiling)
	if p.Target != (Owner{}) {
		fmt.Fprintf(&b, " target=%d/%d move=%d", p.Target.Store[15], p.Target.Incarnation, p.Move)
	}
	if len(p.Superseded) > 0 {
		fmt.Fprintf(&b, " superseded=%v", []OffsetRange(p.Superseded))
	}
	b.WriteString("\n")
	for _, r := range p.Ranges {
		end := strconv.FormatUint(r.End, 10)
		if r.Status == RangeOpen {
			end = ""
		}
		fmt.Fprintf(&b, "  [%d, %s) %s lowest=%s epochs", r.Start, end, r.Status, r.Lowest)
		for _, e := range r.Epochs {
			fmt.Fprintf(&b, " %d@%d", e.Epoch, e.Start)
		}
		b.WriteString(" stores")
		for _, s := range r.Stores {
			fmt.Fprintf(&b, " %d", s[15])
		}
		if r.Accepted {
			b.WriteString(" accepted")
		}
		if !r.Exporter.IsZero() {
			fmt.Fprintf(&b, " exporter=%d/%d", r.Exporter.Store[15], r.Exporter.Incarnation)
		}
		if r.Tail {
			b.WriteString(" tail")
		}
		if r.Doubt > 0 {
			fmt.Fprintf(&b, " doubt=%d", r.Doubt)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func formatSubscription(s *Subscription) string {
	var b strings.Builder
	fmt.Fprintf(&b, "subscription %d %s %s unacked=%d\n", s.ID, s.Name, s.Type, s.Options.MaxUnacked)
	for i, c := range s.Cursors {
		fmt.Fprintf(&b, "  %d: generation=%d prefix=%d acked=%v counts=%v due=%v\n", i, c.Generation, c.Prefix, []OffsetRange(c.Acked), []OffsetNumber(c.Counts), []OffsetNumber(c.Due))
	}
	return b.String()
}
