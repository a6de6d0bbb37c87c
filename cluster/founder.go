package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
)

// founder decides how a data directory comes to its cluster (R9). It is pure but for save, which must have its record on
// disk, synced, when it returns; whoever uses it holds a lock.
//
// A new cluster begins as a proposal {cluster id, list of N} of the lowest store id that is seen. Its proposer writes it
// down before anybody hears of it. Every broker holds to one proposal at a time, on disk, and the proposer founds the
// cluster only when everybody who must hold to it does: the N of the list, and whoever is a seed of one who holds to
// it. So whoever could bring two proposals together through seeds holds to one of them only, and two clusters cannot
// come out of brokers whose seeds lead to each other. A holder lets go only when the proposer itself says that it gave
// the proposal up, which it does before it holds to another one; once founded there is nothing to give up.
type founder struct {
	self   state.StoreID
	expect int
	alone  bool // no seeds and nobody expected: a cluster of one
	disk   record
	save   func(record) error
	wards  map[state.StoreID]*ward // who must hold to this broker's own proposal
	absent int                     // decisions in a row in which some of that proposal's list were away and others here
}

// maxAbsent is for how many decisions a proposal waits for brokers that are away while enough others are here.
const maxAbsent = 100

// record is what a broker has on disk about its cluster.
type record struct {
	Cluster [16]byte  `msgpack:"c,omitempty"` // belongs to it, for ever; zero: to none yet
	Voters  []founded `msgpack:"v,omitempty"` // the founders, if this broker is one of them
	Opened  bool      `msgpack:"o,omitempty"` // the metadata has been opened: missing metadata is damage from here on
	Pledge  *pledge   `msgpack:"p,omitempty"` // what it holds to while it belongs to none
}

// founded is one of the list of a proposal.
type founded struct {
	Store   state.StoreID `msgpack:"s"`
	Address string        `msgpack:"a"` // of its peer port
}

// pledge is a proposal that a broker holds to. With Settled the cluster exists, and this broker, which is not of the
// list, joins it and no other.
type pledge struct {
	Cluster  [16]byte      `msgpack:"c"`
	Proposer state.StoreID `msgpack:"p"`
	List     []founded     `msgpack:"l"`
	Settled  bool          `msgpack:"s,omitempty"`
}

func (p *pledge) names(store state.StoreID) bool {
	return slices.ContainsFunc(p.List, func(f founded) bool { return f.Store == store })
}

// ward is somebody who must hold to a proposal.
type ward struct {
	address string
	held    bool
	why     string // not yet
}

// facts is what a broker knows at a moment.
type facts struct {
	missing []string   // seeds not yet contacted by this run
	seeds   []founded  // who the contacted seeds are, itself aside
	visible []neighbor // who is alive, itself included, by store
}

// neighbor is a broker that is alive.
type neighbor struct {
	founded
	name    string
	cluster [16]byte
	expect  int
}

// step is what to do next.
type step struct {
	kind    stepKind
	text    string     // for the operator
	list    []founded  // whom to propose, or to ask
	members []neighbor // through whom to join
	cluster [16]byte   // which cluster to join or to ask about; zero: any
}

type stepKind uint8

const (
	stepWait    stepKind = iota
	stepDone             // it belongs to a cluster
	stepFound            // found a cluster of one
	stepPropose          // write down a proposal of list
	stepDrive            // ask everybody of list to hold to this broker's proposal
	stepAsk              // ask list, the proposer first, what became of the proposal it holds to
	stepJoin             // join cluster through one of members
	stepGiveUp           // give this broker's own proposal up: some of its list stay away, and others are here
)

// decide says what to do next.
func (f *founder) decide(k facts) step {
	p := f.disk.Pledge
	switch {
	case f.disk.Cluster != [16]byte{}:
		return step{kind: stepDone}
	case p != nil && p.Proposer == f.self && !p.Settled:
		return f.drive(k)
	case p != nil && !p.Settled:
		return step{kind: stepAsk, cluster: p.Cluster, list: f.askable(p, k), text: fmt.Sprintf("waiting for store %s to found the cluster", p.Proposer)}
	}
	var members []neighbor
	for _, n := range k.visible {
		if n.cluster != [16]byte{} && (p == nil || p.Cluster == n.cluster) {
			members = append(members, n)
		}
	}
	if len(members) > 0 {
		return step{kind: stepJoin, cluster: members[0].cluster, members: members, text: "joining the cluster of broker " + members[0].name}
	}
	if p != nil {
		return step{text: fmt.Sprintf("waiting for a broker of cluster %x", p.Cluster)}
	}
	return f.assemble(k)
}

// assemble is the decision of a broker that is free and sees no cluster.
func (f *founder) assemble(k facts) step {
	switch {
	case f.alone:
		return step{kind: stepFound}
	case len(k.missing) > 0:
		return step{text: "waiting for seeds " + strings.Join(k.missing, ", ")}
	case f.expect == 0:
		return step{text: "waiting for a cluster to join: none of the seeds belongs to one (without --expect a broker forms none)"}
	}
	var list []founded
	for _, n := range k.visible {
		switch {
		case n.cluster != [16]byte{} || n.expect == 0:
		case n.expect != f.expect:
			return step{text: fmt.Sprintf("broker %s was started with --expect %d, this one with --expect %d", n.name, n.expect, f.expect)}
		default:
			list = append(list, n.founded)
		}
	}
	switch {
	case len(list) < f.expect:
		return step{text: fmt.Sprintf("%d of %d expected brokers are here", len(list), f.expect)}
	case list[0].Store != f.self:
		return step{text: fmt.Sprintf("waiting for store %s to propose the cluster", list[0].Store)}
	}
	return step{kind: stepPropose, list: list[:f.expect], text: "proposing a cluster"}
}

// drive goes on with this broker's own proposal, if need be one of an earlier run.
func (f *founder) drive(k facts) step {
	if f.wards == nil {
		f.wards = map[state.StoreID]*ward{}
		f.need(f.disk.Pledge.List)
	}
	f.need(k.seeds)
	s := step{kind: stepDrive, cluster: f.disk.Pledge.Cluster}
	if f.deserted(k) {
		return step{kind: stepGiveUp, text: "giving up a proposal: some of its brokers stay away"}
	}
	var whys []string
	for id, w := range f.wards {
		if !w.held {
			s.list = append(s.list, founded{Store: id, Address: w.address})
			if w.why != "" {
				whys = append(whys, w.why)
			}
		}
	}
	slices.SortFunc(s.list, func(a, b founded) int { return compareStores(a.Store, b.Store) })
	slices.Sort(whys)
	if len(whys) == 0 {
		whys = []string{fmt.Sprintf("waiting for %d brokers to agree", len(s.list))}
	}
	s.text = strings.Join(whys, "; ")
	if len(k.missing) > 0 {
		// Its own seeds must hold to the proposal as well, so it must know who they are.
		s.text = "waiting for seeds " + strings.Join(k.missing, ", ")
	}
	return s
}

// deserted says whether some of this broker's own proposal have been away for long while enough others are here.
func (f *founder) deserted(k facts) bool {
	here, away := 0, false
	for _, n := range k.visible {
		if n.cluster == [16]byte{} && n.expect == f.expect {
			here++
		}
	}
	for _, l := range f.disk.Pledge.List {
		away = away || !slices.ContainsFunc(k.visible, func(n neighbor) bool { return n.Store == l.Store })
	}
	if !away || here < f.expect || len(k.missing) > 0 {
		f.absent = 0
		return false
	}
	f.absent++
	return f.absent > maxAbsent
}

func (f *founder) need(who []founded) {
	for _, n := range who {
		if n.Store != f.self && f.wards[n.Store] == nil {
			f.wards[n.Store] = &ward{address: n.Address}
		}
	}
}

// askable lists who may know what became of a proposal: the proposer, then whoever may be of the cluster.
func (f *founder) askable(p *pledge, k facts) []founded {
	var out []founded
	add := func(n founded) {
		if n.Store != f.self && !slices.ContainsFunc(out, func(o founded) bool { return o.Store == n.Store }) {
			out = append(out, n)
		}
	}
	for _, n := range p.List {
		if n.Store == p.Proposer {
			add(n)
		}
	}
	for _, n := range k.visible {
		if n.cluster == p.Cluster {
			add(n.founded)
		}
	}
	for _, n := range p.List {
		add(n)
	}
	return out
}

// found makes a cluster of this broker alone.
func (f *founder) found(cluster [16]byte, address string) error {
	return f.write(record{Cluster: cluster, Voters: []founded{{f.self, address}}})
}

// propose writes a proposal down. Only then may anybody hear of it.
func (f *founder) propose(cluster [16]byte, list []founded) error {
	f.wards, f.absent = nil, 0
	return f.write(record{Pledge: &pledge{Cluster: cluster, Proposer: f.self, List: list}})
}

// holdAnswer says whether a broker holds to a proposal.
type holdAnswer struct {
	Held  bool      `msgpack:"h,omitempty"`
	Needs []founded `msgpack:"n,omitempty"` // who must hold to it too: its seeds; of a refusal, lower ones
	// Of a refusal:
	Why   string    `msgpack:"w,omitempty"`
	Final bool      `msgpack:"f,omitempty"` // belongs to another cluster, so it never will
	Other *founded  `msgpack:"o,omitempty"` // the proposer to whom it holds instead
	List  []founded `msgpack:"l,omitempty"` // of that proposal
}

// holdRequest asks a broker to hold to a proposal.
type holdRequest struct {
	Pledge pledge          `msgpack:"p"`
	Held   []state.StoreID `msgpack:"h,omitempty"` // who does already
}

// request is what this broker asks for its own proposal.
func (f *founder) request() holdRequest {
	r := holdRequest{Pledge: *f.disk.Pledge}
	for id, w := range f.wards {
		if w.held {
			r.Held = append(r.Held, id)
		}
	}
	slices.SortFunc(r.Held, compareStores)
	return r
}

// hold answers a proposer. It has the pledge on disk before it says yes.
func (f *founder) hold(r holdRequest, k facts) (holdAnswer, error) {
	p := r.Pledge
	if err := checkProposal(p); err != nil {
		return holdAnswer{}, err
	}
	mine := f.disk.Pledge
	switch {
	case f.disk.Cluster == p.Cluster:
		return holdAnswer{Held: true}, nil
	case f.disk.Cluster != [16]byte{}:
		return holdAnswer{Final: true, Why: fmt.Sprintf("store %s belongs to cluster %x", f.self, f.disk.Cluster)}, nil
	case mine != nil && mine.Settled:
		// It may yet be refused there, so this is not final.
		return holdAnswer{Why: fmt.Sprintf("store %s is joining cluster %x", f.self, mine.Cluster)}, nil
	case mine != nil && mine.Cluster != p.Cluster && (mine.Proposer != f.self || compareStores(f.self, p.Proposer) < 0):
		a := holdAnswer{Why: fmt.Sprintf("store %s holds to the proposal of store %s", f.self, mine.Proposer), Other: &founded{Store: mine.Proposer}}
		for _, n := range mine.List {
			if n.Store == mine.Proposer {
				a.Other = &n
			}
		}
		return a, nil
	}
	if a := f.objection(r, k); a.Why != "" {
		return a, nil
	}
	if mine == nil || mine.Cluster != p.Cluster {
		// If this broker had a proposal of its own, it gives way to the lower one, and its holders will hear so from it.
		f.wards = nil
		if err := f.write(record{Pledge: &p}); err != nil {
			return holdAnswer{}, err
		}
	}
	return holdAnswer{Held: true, Needs: k.seeds}, nil
}

// objection says why this broker does not hold to a proposal now; an empty answer: it may.
func (f *founder) objection(r holdRequest, k facts) holdAnswer {
	p := r.Pledge
	refuse := func(format string, args ...any) holdAnswer { return holdAnswer{Why: fmt.Sprintf(format, args...)} }
	if len(k.missing) > 0 {
		return refuse("store %s waits for seeds %s", f.self, strings.Join(k.missing, ", "))
	}
	listed := p.names(f.self)
	if listed && f.expect != len(p.List) {
		return refuse("store %s was started with --expect %d, and %d are proposed", f.self, f.expect, len(p.List))
	}
	for _, n := range k.visible {
		if n.cluster != [16]byte{} && n.cluster != p.Cluster {
			return refuse("store %s sees broker %s of cluster %x", f.self, n.name, n.cluster)
		}
		lower := n.cluster == [16]byte{} && n.expect > 0 && compareStores(n.Store, p.Proposer) < 0
		if listed && f.disk.Pledge == nil && lower && !slices.Contains(r.Held, n.Store) {
			a := refuse("store %s sees store %s, which is lower than the proposer", f.self, n.Store)
			// It may wait in its turn for one who holds to this proposal already; so it must agree or go first.
			a.Needs = []founded{n.founded}
			return a
		}
	}
	return holdAnswer{}
}

const maxFounders = 64

func checkProposal(p pledge) error {
	if p.Cluster == [16]byte{} || len(p.List) == 0 || len(p.List) > maxFounders || !p.names(p.Proposer) || p.Settled {
		return fmt.Errorf("a proposal of a cluster that makes no sense: %d brokers", len(p.List))
	}
	return nil
}

// verdict is what an answer means for a proposal.
type verdict uint8

const (
	goOn verdict = iota
	everybodyHolds
	giveUp
)

// heard takes the answer of one broker to this broker's proposal of a cluster, which must still be the one it has.
func (f *founder) heard(cluster [16]byte, from state.StoreID, a holdAnswer, k facts) verdict {
	w := f.wards[from]
	if w == nil || !f.proposes(cluster) {
		return goOn
	}
	switch {
	case a.Held:
		w.held = true
		f.need(a.Needs)
	case a.Final:
		return giveUp
	case a.Other != nil && compareStores(a.Other.Store, f.self) < 0:
		return giveUp // the lower one wins
	default:
		w.why = a.Why
		f.need(a.Needs)
		if a.Other != nil {
			f.need([]founded{*a.Other}) // which then gives way to this lower one
		}
	}
	return f.complete(cluster, k)
}

func (f *founder) proposes(cluster [16]byte) bool {
	p := f.disk.Pledge
	return p != nil && p.Cluster == cluster && p.Proposer == f.self && !p.Settled
}

// complete says whether everybody holds to this broker's proposal of a cluster. Its own seeds may be the last it waits
// for, after all answers have come.
func (f *founder) complete(cluster [16]byte, k facts) verdict {
	if !f.proposes(cluster) || f.wards == nil || len(k.missing) > 0 {
		return goOn
	}
	f.need(k.seeds)
	for _, w := range f.wards {
		if !w.held {
			return goOn
		}
	}
	return everybodyHolds
}

// commit founds the cluster that this broker proposed: from here on it exists.
func (f *founder) commit() error {
	p := f.disk.Pledge
	return f.write(record{Cluster: p.Cluster, Voters: p.List})
}

// release lets go of whatever this broker holds to.
func (f *founder) release() error {
	f.wards = nil
	return f.write(record{})
}

// askAnswer says what became of a proposal.
type askAnswer struct {
	Founded bool `msgpack:"f,omitempty"`
	Open    bool `msgpack:"o,omitempty"` // its proposer goes on with it
}

// asked answers a holder.
func (f *founder) asked(cluster [16]byte) askAnswer {
	p := f.disk.Pledge
	return askAnswer{
		Founded: f.disk.Cluster == cluster || p != nil && p.Settled && p.Cluster == cluster,
		Open:    p != nil && p.Cluster == cluster && p.Proposer == f.self,
	}
}

// told takes the answer of one broker about the proposal this one holds to.
func (f *founder) told(cluster [16]byte, from state.StoreID, a askAnswer) error {
	p := f.disk.Pledge
	if p == nil || p.Cluster != cluster || p.Settled || p.Proposer == f.self {
		return nil
	}
	switch {
	case a.Founded && p.names(f.self):
		return f.write(record{Cluster: p.Cluster, Voters: p.List})
	case a.Founded:
		settled := *p
		settled.Settled = true
		return f.write(record{Pledge: &settled})
	case from == p.Proposer && !a.Open:
		return f.release() // it will never found it
	}
	return nil
}

// joining says on disk which cluster is about to be asked: killed after it was added, this broker asks there again.
func (f *founder) joining(cluster [16]byte) error {
	if f.disk.Pledge != nil && f.disk.Pledge.Cluster == cluster {
		return nil
	}
	return f.write(record{Pledge: &pledge{Cluster: cluster, Settled: true}})
}

// joined says on disk that a cluster has taken this broker in.
func (f *founder) joined(cluster [16]byte) error { return f.write(record{Cluster: cluster}) }

// opened says on disk that the metadata of the cluster has been opened here.
func (f *founder) opened() error {
	if f.disk.Opened {
		return nil
	}
	r := f.disk
	r.Opened = true
	return f.write(r)
}

func (f *founder) write(r record) error {
	if err := f.save(r); err != nil {
		return err
	}
	f.disk = r
	return nil
}
