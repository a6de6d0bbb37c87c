package founding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
)

// Founder decides how a data directory comes to its cluster (R9). Save must have its record on disk, synced, when it
// returns; whoever uses the founder holds a lock.
//
// A new cluster begins as a proposal {cluster id, list of N} of the lowest store id that is seen. Its proposer writes it
// down before anybody hears of it. Every broker holds to one proposal at a time, on disk, and the proposer founds the
// cluster only when everybody who must hold to it does: the N of the list, and whoever is a seed of one who holds to
// it. So whoever could bring two proposals together through seeds holds to one of them only, and two clusters cannot
// come out of brokers whose seeds lead to each other. A holder lets go only when the proposer itself says that it gave
// the proposal up, which it does before it holds to another one; once founded there is nothing to give up.
type Founder struct {
	Self   state.StoreID
	Expect int    // brokers that form a cluster; zero: it only joins
	Alone  bool   // no seeds and nobody expected: a cluster of one
	Disk   Record // what was saved last
	Save   func(Record) error
	wards  map[state.StoreID]*ward // who must hold to this broker's own proposal
	absent int                     // decisions in a row in which some of that proposal's list were away and others here
}

// maxAbsent is for how many decisions a proposal waits for brokers that are away while enough others are here.
const maxAbsent = 100

// Record is what a broker has on disk about its cluster.
type Record struct {
	Cluster [16]byte `msgpack:"c,omitempty"` // belongs to it, for ever; zero: to none yet
	Voters  []Broker `msgpack:"v,omitempty"` // the founders, if this broker is one of them
	Opened  bool     `msgpack:"o,omitempty"` // the metadata has been opened: missing metadata is damage from here on
	Pledge  *Pledge  `msgpack:"p,omitempty"` // what it holds to while it belongs to none
	History uint16   `msgpack:"h,omitempty"` // the newest that its metadata were seen in (R22); with Opened
}

// Broker is one of the list of a proposal.
type Broker struct {
	Store   state.StoreID `msgpack:"s"`
	Address string        `msgpack:"a"` // of its peer port
}

// Pledge is a proposal that a broker holds to. With Settled the cluster exists, and this broker, which is not of the
// list, joins it and no other.
type Pledge struct {
	Cluster  [16]byte      `msgpack:"c"`
	Proposer state.StoreID `msgpack:"p"`
	List     []Broker      `msgpack:"l"`
	Settled  bool          `msgpack:"s,omitempty"`
}

func (p *Pledge) names(store state.StoreID) bool {
	return slices.ContainsFunc(p.List, func(f Broker) bool { return f.Store == store })
}

// ward is somebody who must hold to a proposal.
type ward struct {
	address string
	held    bool
	why     string // not yet
}

// Facts is what a broker knows at a moment.
type Facts struct {
	Missing []string   // seeds not yet contacted by this run
	Seeds   []Broker   // who the contacted seeds are, itself aside
	Visible []Neighbor // who is alive, itself included, by store
}

// Neighbor is a broker that is alive.
type Neighbor struct {
	Broker
	Name    string
	Cluster [16]byte
	Expect  int
}

// Step is what to do next.
type Step struct {
	Kind    Kind
	Text    string     // for the operator
	List    []Broker   // whom to propose, or to ask
	Members []Neighbor // through whom to join
	Cluster [16]byte   // which cluster to join or to ask about; zero: any
}

// Kind says what a step does. Its zero value is to wait.
type Kind uint8

// The kinds.
const (
	wait    Kind = iota
	Done         // it belongs to a cluster
	Found        // found a cluster of one
	Propose      // write down a proposal of List
	Drive        // ask everybody of List to hold to this broker's proposal
	Ask          // ask List, the proposer first, what became of the proposal it holds to
	Join         // join Cluster through one of Members
	GiveUp       // give this broker's own proposal up: some of its list stay away, and others are here
)

// Decide says what to do next.
func (f *Founder) Decide(k Facts) Step {
	p := f.Disk.Pledge
	switch {
	case f.Disk.Cluster != [16]byte{}:
		return Step{Kind: Done}
	case p != nil && p.Proposer == f.Self && !p.Settled:
		return f.drive(k)
	case p != nil && !p.Settled:
		return Step{Kind: Ask, Cluster: p.Cluster, List: f.askable(p, k), Text: fmt.Sprintf("waiting for store %s to found the cluster", p.Proposer)}
	}
	var members []Neighbor
	for _, n := range k.Visible {
		if n.Cluster != [16]byte{} && (p == nil || p.Cluster == n.Cluster) {
			members = append(members, n)
		}
	}
	if len(members) > 0 {
		return Step{Kind: Join, Cluster: members[0].Cluster, Members: members, Text: "joining the cluster of broker " + members[0].Name}
	}
	if p != nil {
		return Step{Text: fmt.Sprintf("waiting for a broker of cluster %x", p.Cluster)}
	}
	return f.assemble(k)
}

// assemble is the decision of a broker that is free and sees no cluster.
func (f *Founder) assemble(k Facts) Step {
	switch {
	case f.Alone:
		return Step{Kind: Found}
	case len(k.Missing) > 0:
		return Step{Text: "waiting for seeds " + strings.Join(k.Missing, ", ")}
	case f.Expect == 0:
		return Step{Text: "waiting for a cluster to join: none of the seeds belongs to one (without --expect a broker forms none)"}
	}
	var list []Broker
	for _, n := range k.Visible {
		switch {
		case n.Cluster != [16]byte{} || n.Expect == 0:
		case n.Expect != f.Expect:
			return Step{Text: fmt.Sprintf("broker %s was started with --expect %d, this one with --expect %d", n.Name, n.Expect, f.Expect)}
		default:
			list = append(list, n.Broker)
		}
	}
	switch {
	case len(list) < f.Expect:
		return Step{Text: fmt.Sprintf("%d of %d expected brokers are here", len(list), f.Expect)}
	case list[0].Store != f.Self:
		return Step{Text: fmt.Sprintf("waiting for store %s to propose the cluster", list[0].Store)}
	}
	return Step{Kind: Propose, List: list[:f.Expect], Text: "proposing a cluster"}
}

// drive goes on with this broker's own proposal, if need be one of an earlier run.
func (f *Founder) drive(k Facts) Step {
	if f.wards == nil {
		f.wards = map[state.StoreID]*ward{}
		f.need(f.Disk.Pledge.List)
	}
	f.need(k.Seeds)
	s := Step{Kind: Drive, Cluster: f.Disk.Pledge.Cluster}
	if f.deserted(k) {
		return Step{Kind: GiveUp, Text: "giving up a proposal: some of its brokers stay away"}
	}
	var whys []string
	for id, w := range f.wards {
		if !w.held {
			s.List = append(s.List, Broker{Store: id, Address: w.address})
			if w.why != "" {
				whys = append(whys, w.why)
			}
		}
	}
	slices.SortFunc(s.List, func(a, b Broker) int { return compareStores(a.Store, b.Store) })
	slices.Sort(whys)
	if len(whys) == 0 {
		whys = []string{fmt.Sprintf("waiting for %d brokers to agree", len(s.List))}
	}
	s.Text = strings.Join(whys, "; ")
	if len(k.Missing) > 0 {
		// Its own seeds must hold to the proposal as well, so it must know who they are.
		s.Text = "waiting for seeds " + strings.Join(k.Missing, ", ")
	}
	return s
}

// deserted says whether some of this broker's own proposal have been away for long while enough others are here.
func (f *Founder) deserted(k Facts) bool {
	here, away := 0, false
	for _, n := range k.Visible {
		if n.Cluster == [16]byte{} && n.Expect == f.Expect {
			here++
		}
	}
	for _, l := range f.Disk.Pledge.List {
		away = away || !slices.ContainsFunc(k.Visible, func(n Neighbor) bool { return n.Store == l.Store })
	}
	if !away || here < f.Expect || len(k.Missing) > 0 {
		f.absent = 0
		return false
	}
	f.absent++
	return f.absent > maxAbsent
}

func (f *Founder) need(who []Broker) {
	for _, n := range who {
		if n.Store != f.Self && f.wards[n.Store] == nil {
			f.wards[n.Store] = &ward{address: n.Address}
		}
	}
}

// askable lists who may know what became of a proposal: the proposer, then whoever may be of the cluster.
func (f *Founder) askable(p *Pledge, k Facts) []Broker {
	var out []Broker
	add := func(n Broker) {
		if n.Store != f.Self && !slices.ContainsFunc(out, func(o Broker) bool { return o.Store == n.Store }) {
			out = append(out, n)
		}
	}
	for _, n := range p.List {
		if n.Store == p.Proposer {
			add(n)
		}
	}
	for _, n := range k.Visible {
		if n.Cluster == p.Cluster {
			add(n.Broker)
		}
	}
	for _, n := range p.List {
		add(n)
	}
	return out
}

// Found makes a cluster of this broker alone.
func (f *Founder) Found(cluster [16]byte, address string) error {
	return f.write(Record{Cluster: cluster, Voters: []Broker{{f.Self, address}}})
}

// Propose writes a proposal down. Only then may anybody hear of it.
func (f *Founder) Propose(cluster [16]byte, list []Broker) error {
	f.wards, f.absent = nil, 0
	return f.write(Record{Pledge: &Pledge{Cluster: cluster, Proposer: f.Self, List: list}})
}

// HoldAnswer says whether a broker holds to a proposal.
type HoldAnswer struct {
	Held  bool     `msgpack:"h,omitempty"`
	Needs []Broker `msgpack:"n,omitempty"` // who must hold to it too: its seeds; of a refusal, lower ones
	// Of a refusal:
	Why   string   `msgpack:"w,omitempty"`
	Final bool     `msgpack:"f,omitempty"` // belongs to another cluster, so it never will
	Other *Broker  `msgpack:"o,omitempty"` // the proposer to whom it holds instead
	List  []Broker `msgpack:"l,omitempty"` // of that proposal
}

// HoldRequest asks a broker to hold to a proposal.
type HoldRequest struct {
	Pledge Pledge          `msgpack:"p"`
	Held   []state.StoreID `msgpack:"h,omitempty"` // who does already
}

// Request is what this broker asks for its own proposal.
func (f *Founder) Request() HoldRequest {
	r := HoldRequest{Pledge: *f.Disk.Pledge}
	for id, w := range f.wards {
		if w.held {
			r.Held = append(r.Held, id)
		}
	}
	slices.SortFunc(r.Held, compareStores)
	return r
}

// Hold answers a proposer. It has the pledge on disk before it says yes.
func (f *Founder) Hold(r HoldRequest, k Facts) (HoldAnswer, error) {
	p := r.Pledge
	if err := checkProposal(p); err != nil {
		return HoldAnswer{}, err
	}
	mine := f.Disk.Pledge
	switch {
	case f.Disk.Cluster == p.Cluster:
		return HoldAnswer{Held: true}, nil
	case f.Disk.Cluster != [16]byte{}:
		return HoldAnswer{Final: true, Why: fmt.Sprintf("store %s belongs to cluster %x", f.Self, f.Disk.Cluster)}, nil
	case mine != nil && mine.Settled:
		// It may yet be refused there, so this is not final.
		return HoldAnswer{Why: fmt.Sprintf("store %s is joining cluster %x", f.Self, mine.Cluster)}, nil
	case mine != nil && mine.Cluster != p.Cluster && (mine.Proposer != f.Self || compareStores(f.Self, p.Proposer) < 0):
		a := HoldAnswer{Why: fmt.Sprintf("store %s holds to the proposal of store %s", f.Self, mine.Proposer), Other: &Broker{Store: mine.Proposer}}
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
		if err := f.write(Record{Pledge: &p}); err != nil {
			return HoldAnswer{}, err
		}
	}
	return HoldAnswer{Held: true, Needs: k.Seeds}, nil
}

// objection says why this broker does not hold to a proposal now; an empty answer: it may.
func (f *Founder) objection(r HoldRequest, k Facts) HoldAnswer {
	p := r.Pledge
	refuse := func(format string, args ...any) HoldAnswer { return HoldAnswer{Why: fmt.Sprintf(format, args...)} }
	if len(k.Missing) > 0 {
		return refuse("store %s waits for seeds %s", f.Self, strings.Join(k.Missing, ", "))
	}
	listed := p.names(f.Self)
	if listed && f.Expect != len(p.List) {
		return refuse("store %s was started with --expect %d, and %d are proposed", f.Self, f.Expect, len(p.List))
	}
	for _, n := range k.Visible {
		if n.Cluster != [16]byte{} && n.Cluster != p.Cluster {
			return refuse("store %s sees broker %s of cluster %x", f.Self, n.Name, n.Cluster)
		}
		lower := n.Cluster == [16]byte{} && n.Expect > 0 && compareStores(n.Store, p.Proposer) < 0
		if listed && f.Disk.Pledge == nil && lower && !slices.Contains(r.Held, n.Store) {
			a := refuse("store %s sees store %s, which is lower than the proposer", f.Self, n.Store)
			// It may wait in its turn for one who holds to this proposal already; so it must agree or go first.
			a.Needs = []Broker{n.Broker}
			return a
		}
	}
	return HoldAnswer{}
}

const maxFounders = 64

func checkProposal(p Pledge) error {
	if p.Cluster == [16]byte{} || len(p.List) == 0 || len(p.List) > maxFounders || !p.names(p.Proposer) || p.Settled {
		return fmt.Errorf("a proposal of a cluster that makes no sense: %d brokers", len(p.List))
	}
	return nil
}

// Verdict is what an answer means for a proposal.
type Verdict uint8

// The verdicts. The zero value is to go on.
const (
	goOn      Verdict = iota
	Everybody         // everybody holds to it: commit
	Abandon           // it cannot be founded: release
)

// Heard takes the answer of one broker to this broker's proposal of a cluster, which must still be the one it has.
func (f *Founder) Heard(cluster [16]byte, from state.StoreID, a HoldAnswer, k Facts) Verdict {
	w := f.wards[from]
	if w == nil || !f.proposes(cluster) {
		return goOn
	}
	switch {
	case a.Held:
		w.held = true
		f.need(a.Needs)
	case a.Final:
		return Abandon
	case a.Other != nil && compareStores(a.Other.Store, f.Self) < 0:
		return Abandon // the lower one wins
	default:
		w.why = a.Why
		f.need(a.Needs)
		if a.Other != nil {
			f.need([]Broker{*a.Other}) // which then gives way to this lower one
		}
	}
	return f.Complete(cluster, k)
}

func (f *Founder) proposes(cluster [16]byte) bool {
	p := f.Disk.Pledge
	return p != nil && p.Cluster == cluster && p.Proposer == f.Self && !p.Settled
}

// Complete says whether everybody holds to this broker's proposal of a cluster. Its own seeds may be the last it waits
// for, after all answers have come.
func (f *Founder) Complete(cluster [16]byte, k Facts) Verdict {
	if !f.proposes(cluster) || f.wards == nil || len(k.Missing) > 0 {
		return goOn
	}
	f.need(k.Seeds)
	for _, w := range f.wards {
		if !w.held {
			return goOn
		}
	}
	return Everybody
}

// Commit founds the cluster that this broker proposed: from here on it exists.
func (f *Founder) Commit() error {
	p := f.Disk.Pledge
	return f.write(Record{Cluster: p.Cluster, Voters: p.List})
}

// Release lets go of whatever this broker holds to.
func (f *Founder) Release() error {
	f.wards = nil
	return f.write(Record{})
}

// AskAnswer says what became of a proposal.
type AskAnswer struct {
	Founded bool `msgpack:"f,omitempty"`
	Open    bool `msgpack:"o,omitempty"` // its proposer goes on with it
}

// Asked answers a holder.
func (f *Founder) Asked(cluster [16]byte) AskAnswer {
	p := f.Disk.Pledge
	return AskAnswer{
		Founded: f.Disk.Cluster == cluster || p != nil && p.Settled && p.Cluster == cluster,
		Open:    p != nil && p.Cluster == cluster && p.Proposer == f.Self,
	}
}

// Told takes the answer of one broker about the proposal this one holds to.
func (f *Founder) Told(cluster [16]byte, from state.StoreID, a AskAnswer) error {
	p := f.Disk.Pledge
	if p == nil || p.Cluster != cluster || p.Settled || p.Proposer == f.Self {
		return nil
	}
	switch {
	case a.Founded && p.names(f.Self):
		return f.write(Record{Cluster: p.Cluster, Voters: p.List})
	case a.Founded:
		settled := *p
		settled.Settled = true
		return f.write(Record{Pledge: &settled})
	case from == p.Proposer && !a.Open:
		return f.Release() // it will never found it
	}
	return nil
}

// Joining says on disk which cluster is about to be asked: killed after it was added, this broker asks there again.
func (f *Founder) Joining(cluster [16]byte) error {
	if f.Disk.Pledge != nil && f.Disk.Pledge.Cluster == cluster {
		return nil
	}
	return f.write(Record{Pledge: &Pledge{Cluster: cluster, Settled: true}})
}

// Joined says on disk that a cluster has taken this broker in.
func (f *Founder) Joined(cluster [16]byte) error { return f.write(Record{Cluster: cluster}) }

// Opened says on disk that the metadata of the cluster have been opened here, in a history.
func (f *Founder) Opened(history uint16) error {
	r := f.Disk
	r.Opened, r.History = true, max(r.History, history)
	if f.Disk.Opened && f.Disk.History == r.History {
		return nil
	}
	return f.write(r)
}

// Rejoin says on disk that the metadata were taken out of this data directory: it joins the cluster that it belongs to
// anew, and no other. What it was told or promised as a voter is forgotten with its metadata, so the leader must first
// take out of Raft what the cluster knows of it.
func (f *Founder) Rejoin() error {
	return f.write(Record{Pledge: &Pledge{Cluster: f.Disk.Cluster, Settled: true}})
}

func (f *Founder) write(r Record) error {
	if err := f.Save(r); err != nil {
		return err
	}
	f.Disk = r
	return nil
}

func compareStores(a, b state.StoreID) int { return cmp.Compare(string(a[:]), string(b[:])) }
