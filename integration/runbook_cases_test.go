//go:build linux

package integration

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danubemq/danube/protocol"
)

// sizeRun is the size of the messages of these cases.
const sizeRun = 100

// on makes a topic of one partition at a broker, with messages 0 to n-1.
func (o *operator) on(name, topic string, n int) {
	o.t.Helper()
	o.create(topic, 1)
	o.place(topic, o.called(name))
	if n > 0 {
		sendEach(o.t, o.produce(topic), 0, n, sizeRun)
	}
}

// whole fails the test unless a topic holds messages 0 to n-1 in turn, at whatever offsets.
func (o *operator) whole(topic string, n, size int) {
	o.t.Helper()
	got, gaps := o.contents(topic)
	if len(got) != n {
		o.t.Fatalf("%s holds %d messages, want %d; gaps %v", topic, len(got), n, gaps)
	}
	for i, at := range slices.Sorted(maps.Keys(got)) {
		if got[at] != string(numbered(i, size)) {
			o.t.Fatalf("%s has %.40q at offset %d, want message %d", topic, got[at], at, i)
		}
	}
}

// voters waits until three brokers vote.
func (o *operator) voters() {
	o.t.Helper()
	eventually(o.t, readyWithin, "three brokers vote", func() bool {
		n := 0
		for _, b := range o.status().Brokers {
			if b.Voter && b.State == "active" {
				n++
			}
		}
		return n == 3
	})
}

func deadBroker(o *operator) {
	o.begin()
	o.on("n1", "orders", 100)
	sub := o.consumerThatWaits("orders", "sub")
	o.shell("scripts/cluster kill n1")
	o.reads("n1 is lost", "1 range is orphaned")
	sendEach(o.t, o.produce("orders"), 100, 50, sizeRun) // others serve it already
	o.types("scripts/cluster start n1")
	o.awaits("cluster status", "cluster danube")
	o.settled("orders")
	o.well()
	o.whole("orders", 150, sizeRun)
	for i, m := range sub.next(o.t, 150) {
		if string(m.Payload) != string(numbered(i, sizeRun)) {
			o.t.Fatalf("the subscription got %.40q as number %d", m.Payload, i)
		}
	}
	o.shell("scripts/cluster stop n1")
	if text := o.reads("n1 is stopped"); strings.Contains(text, "orphaned") || strings.Contains(text, "n1 is lost") {
		o.t.Errorf("after a stop in order status prints\n%s", text)
	}
	o.shell("scripts/cluster start n1")
	o.well()
}

func deadDisk(o *operator) {
	o.begin()
	o.on("n1", "orders", 100)
	o.on("n2", "kept", 100)
	o.shell("scripts/cluster kill n1")
	if err := os.RemoveAll(o.brokers[0].dir); err != nil {
		o.t.Fatal(err)
	}
	o.reads("n1 is lost", "on broker n1")
	if text := o.types("broker describe n1"); !strings.Contains(text, "/default/orders:0") || strings.Contains(text, "kept") {
		o.t.Errorf("what lies nowhere else is said to be\n%s", text)
	}
	o.types("broker remove n1 --lose")
	o.types("scripts/cluster start n1")
	o.awaits("cluster status", "n1 127.0.0.11:6650 active")
	o.voters()
	o.well()
	o.whole("kept", 100, sizeRun)
	if got, gaps := o.contents("orders"); len(got) > 0 || len(gaps) == 0 || gaps[0].status != "lost" {
		o.t.Errorf("of what is lost %d messages are read, and the gaps %v", len(got), gaps)
	}
	sendEach(o.t, o.produce("orders"), 0, 10, sizeRun)
	o.whole("orders", 10, sizeRun)
}

func lostMajority(o *operator) {
	o.begin()
	o.on("n3", "orders", 100)
	o.on("n1", "of-n1", 50)
	o.on("n2", "of-n2", 50)
	o.shell("scripts/cluster kill n1")
	o.shell("scripts/cluster kill n2")
	o.reads("leader none known")
	o.types("scripts/cluster stop n3")
	o.types("cluster recover")
	o.types("scripts/cluster start n3")
	status := o.next("cluster status")
	text := o.prints(status, "would be lost too")
	o.quote("would be lost too")
	o.other = strings.Contains(text, "n1 would be lost too")
	o.quote("n1 is lost")
	o.prints(status, "n1 is lost", "n2 would be lost too")
	o.ownsNothing(status, "n1")
	o.types("broker remove n1 --lose")
	back := o.called(o.own("n2"))
	o.comesBack(back)
	o.ownsNothing(o.next("cluster status"), "n2")
	o.types("broker remove n2 --lose")
	o.other = false
	o.reads("1 range is orphaned")
	o.types("topic resolve orders --lost")
	o.whole("orders", 100, sizeRun)
	o.well()

	// The database of the one that is left is damaged as well.
	o.shell("scripts/cluster stop n3")
	o.damageDatabase()
	o.types("--dry-run")
	o.types("cluster rebuild --from")
	o.shell("scripts/cluster start n3")
	o.settled("orders")
	o.whole("orders", 100, sizeRun)
	for _, b := range o.brokers[:2] {
		if err := os.RemoveAll(b.dir); err != nil {
			o.t.Fatal(err)
		}
		o.shell("scripts/cluster start " + b.name)
	}
	o.voters()
	o.well()
	sendEach(o.t, o.produce("orders"), 100, 10, sizeRun)
	o.whole("orders", 110, sizeRun)
	o.whole("of-"+back.name, 50, sizeRun)
}

// ownsNothing waits until a broker is lost and owns no partition by the table of a status.
func (o *operator) ownsNothing(status, name string) {
	o.t.Helper()
	row := regexp.MustCompile(`(?m)^` + o.own(name) + ` +\S+ +lost.* +(yes|no) +0 +\d+ +- *$`)
	o.until(func() string {
		if text := o.shell(status); !row.MatchString(text) {
			return text
		}
		return ""
	})
}

// comesBack starts a broker that was thought lost and not removed: it stops, and without its metadata it joins anew with
// its messages. Then it dies for good.
func (o *operator) comesBack(b *broker) {
	o.t.Helper()
	if out, err := o.try("scripts/cluster start n2"); err == nil {
		o.t.Fatalf("a broker of the old majority started:\n%s", out)
	}
	const over = "metadata are of a history that is over"
	o.quote(over)
	if text := lastLines(b.dir+".log", 3); !strings.Contains(text, over) {
		o.t.Errorf("a broker of the old majority says\n%s", text)
	}
	if err := os.Rename(filepath.Join(b.dir, "meta"), filepath.Join(o.dir, "meta.old")); err != nil {
		o.t.Fatal(err)
	}
	o.shell("scripts/cluster start n2")
	o.settled("of-" + b.name)
	o.whole("of-"+b.name, 50, sizeRun)
	o.shell("scripts/cluster kill n2")
}

// damageDatabase overwrites the middle of n3's Raft database.
func (o *operator) damageDatabase() {
	o.t.Helper()
	f, err := os.OpenFile(filepath.Join(o.brokers[2].dir, "meta", "raft", "raft.db"), os.O_WRONLY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(strings.Repeat("damage", 4096)), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		o.t.Fatal(err)
	}
}

func fullDisk(o *operator) {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		o.t.Fatal(err)
	}
	n1 := o.brokers[0]
	if err := os.Symlink(volume(o.t, "50"), n1.dir); err != nil {
		o.t.Fatal(err)
	}
	o.env = append(o.env, "DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB")
	o.begin()
	o.on("n1", "orders", 0)
	status := o.next("cluster status --broker")
	if text := o.shell(status); strings.Contains(text, "degraded") {
		o.t.Errorf("with an empty disk status prints\n%s", text)
	}
	n := 41 << 20 / sizeFull
	sendEach(o.t, o.produce("orders"), 0, n, sizeFull)
	o.quote("disk 81 % full")
	o.prints(status, "disk 81 % full")
	more, refusal := fill(o.t, n1, "orders", n)
	n += more
	if !errors.Is(refusal, &protocol.Error{Code: protocol.CodeStorageFull}) {
		o.t.Errorf("the refusal is %v", refusal)
	}
	const full = "storage full: no message is taken until space is free again"
	o.quote(full)
	o.prints(status, full)
	o.whole("orders", n, sizeFull)
	if got := o.consumerThatWaits("orders", "sub").next(o.t, 3); len(got) != 3 { // it acknowledges them
		o.t.Errorf("of a full disk %d messages were consumed", len(got))
	}
	o.types("topic set orders --retention-time")
	o.types("topic move orders:0 --to n2")
	o.types("broker drain n1")
	o.types("broker activate n1")
	o.whole("orders", n, sizeFull)
	sendEach(o.t, o.produce("orders"), n, 10, sizeFull)
	o.whole("orders", n+10, sizeFull)
	o.on("n1", "again", 10) // it takes messages by itself
	o.until(func() string {
		if text := o.shell(status); strings.Contains(text, "degraded") {
			return text
		}
		return ""
	})
}

func stuckMove(o *operator) {
	o.begin()
	o.on("n1", "orders", 100)
	o.on("n1", "held", 10)
	o.on("n3", "slow", 10)
	target, source := o.brokers[1], o.brokers[2]
	source.tell("wait move.sealing") // n3 gives nothing away: the cluster's business
	slow := o.moves("slow:0", "n2")
	target.tell("wait move.preparing") // n2 takes nothing: the source's business
	move := o.moves("orders:0", "n2")
	o.reads("1 partition is moving", "from n1 to n2")
	if m := <-move; m.err == nil || m.took > 20*time.Second {
		o.t.Errorf("after %v the move to a target that hangs ended with %v:\n%s", m.took, m.err, m.text)
	}
	if owner := o.owner("orders", 0); owner.name != "n1" {
		o.t.Errorf("owned by %s", owner.name)
	}
	sendEach(o.t, o.produce("orders"), 100, 50, sizeRun)
	sendEach(o.t, o.produce("slow"), 10, 10, sizeRun) // what is not paused is served meanwhile
	o.awaits("topic describe orders", "n1 open")
	o.types("topic move orders:0 --to n3")
	if owner := o.owner("orders", 0); owner.name != "n3" {
		o.t.Errorf("owned by %s", owner.name)
	}
	target.tell("go move.preparing")
	o.settled("orders")
	o.whole("orders", 150, sizeRun)
	if m := <-slow; m.err == nil || m.took < 25*time.Second || m.took > 45*time.Second {
		o.t.Errorf("after %v the move off a source that hangs ended with %v:\n%s", m.took, m.err, m.text)
	}
	source.tell("go move.sealing")
	o.settled("slow")
	o.well()
	o.whole("slow", 20, sizeRun)
	o.drainWithoutEnd()
}

// moved is how a move ended.
type moved struct {
	text string
	took time.Duration
	err  error
}

// moves begins a move and returns where its end is told.
func (o *operator) moves(partition, to string) <-chan moved {
	from, end := time.Now(), make(chan moved, 1)
	cmd := o.command(o.t.Context(), "danube topic move "+partition+" --to "+to)
	go func() { // returns when the move is over or taken back, or the test over
		out, err := cmd.CombinedOutput()
		end <- moved{string(out), time.Since(from), err}
	}()
	return end
}

// drainWithoutEnd drains a broker whose messages nobody can copy: the others are away.
func (o *operator) drainWithoutEnd() {
	o.t.Helper()
	for _, b := range o.brokers[1:] {
		b.tell("wait move.preparing")
	}
	text, err := o.try("danube broker drain n1 --timeout 1s")
	const left = "1 partition to move"
	o.quote(left)
	if err == nil || !strings.Contains(text, left) {
		o.t.Errorf("a drain that does not end ended with %v:\n%s", err, text)
	}
	const describe = "danube broker describe n1"
	o.quote(describe)
	o.prints(describe, "lies nowhere else", "/default/held:0")
	for _, b := range o.brokers[1:] {
		b.tell("go move.preparing")
	}
	o.shell("danube broker activate n1")
	o.settled("held")
	o.well()
}

func orphanedRange(o *operator) {
	o.begin()
	o.on("n1", "orders", 100)
	sub := o.consumerThatWaits("orders", "sub")
	o.shell("scripts/cluster kill n1")
	o.reads("1 range is orphaned")
	sendEach(o.t, o.produce("orders"), 100, 10, sizeRun)
	o.awaits("topic describe orders", "0-", "ORPHANED may come back with broker n1")
	o.types("--accept-gap")
	taken := sub.next(o.t, 10)
	if first := taken[0]; string(first.Payload) == string(numbered(100, sizeRun)) == (len(sub.gaps) == 0) {
		o.t.Errorf("the subscription goes on with %.40q and %d gaps", first.Payload, len(sub.gaps))
	}
	o.types("--lost")
	if text := o.shell("danube cluster status"); strings.Contains(text, "orphaned") {
		o.t.Errorf("after it was given up status prints\n%s", text)
	}
	o.shell("scripts/cluster start n1")
	o.types("--adopt")
	o.well()
	o.whole("orders", 110, sizeRun)
}
