package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta/state"
)

// Member is a broker as gossip shows it: a hint, and no authority on who belongs to the cluster.
type Member struct {
	Store     state.StoreID
	Name      string
	Cluster   [16]byte // zero: belongs to none yet
	Addresses state.Addresses
	Gossip    string // host:port
	State     MemberState
	Since     time.Time // when the state began
	Load      Load
	Expect    int // what it was started with
}

// MemberState says what gossip thinks of a broker. It decides nothing (R7).
type MemberState uint8

// The states.
const (
	Alive   MemberState = iota
	Suspect             // has not answered for a while
	Dead                // gossip has given it up, or it said goodbye
)

// String returns the state as output spells it.
func (s MemberState) String() string { return [...]string{"alive", "suspect", "dead"}[min(s, Dead)] }

// Load is what a broker says of its work; placement goes by it.
type Load struct {
	Partitions int     `msgpack:"p"` // owned
	BytesIn    float64 `msgpack:"i"` // a second, from producers
	BytesOut   float64 `msgpack:"o"` // a second, to consumers
	Disk       float64 `msgpack:"d"` // share of the disk in use, 0 to 1
}

// card is what gossip carries of each broker. It must fit memberlist's 512 bytes.
type card struct {
	Cluster   [16]byte        `msgpack:"c"`
	Of        string          `msgpack:"o"` // the cluster's name
	Name      string          `msgpack:"n"`
	Addresses state.Addresses `msgpack:"a"`
	Expect    int             `msgpack:"e,omitempty"`
	Run       uint64          `msgpack:"r"`
	History   uint16          `msgpack:"h,omitempty"` // of its metadata (R22)
}

func encodeCard(c card) ([]byte, error) {
	b, err := peer.Encode(c)
	if err == nil && len(b) > memberlist.MetaMaxSize {
		err = fmt.Errorf("the names and addresses of this broker take %d bytes in gossip; at most %d fit", len(b), memberlist.MetaMaxSize)
	}
	return b, err
}

func decodeCard(b []byte) (card, error) {
	var c card
	if len(b) > memberlist.MetaMaxSize {
		return c, fmt.Errorf("decode broker card: %d bytes", len(b))
	}
	return c, peer.Decode(b, &c)
}

// note is a message between the gossips: a broker's load.
type note struct {
	Store state.StoreID `msgpack:"s"`
	Run   uint64        `msgpack:"r"`
	Seq   uint64        `msgpack:"q"` // newer notes of one run have higher ones
	Load  Load          `msgpack:"l"`
}

const maxNote = 512

func decodeNote(b []byte) (note, error) {
	var n note
	if len(b) > maxNote {
		return n, fmt.Errorf("decode note: %d bytes", len(b))
	}
	return n, peer.Decode(b, &n)
}

// seen is what the table holds of a broker.
type seen struct {
	card    card
	address string // of its gossip
	dead    bool
	since   time.Time
	heard   time.Time // its last direct answer to a probe, or when it appeared
	note    note
}

// table is the brokers that gossip has shown. It is a value: its user holds the lock.
type table struct {
	self    state.StoreID
	members map[state.StoreID]*seen
}

// maxDead is how many brokers that are gone stay in the table.
const maxDead = 256

// put notes that a broker is there.
func (t *table) put(store state.StoreID, c card, address string, now time.Time) {
	m := t.members[store]
	if m == nil || m.dead || m.card.Run != c.Run {
		n := &seen{since: now, heard: now}
		if m != nil && m.card.Run == c.Run {
			n.note = m.note
		}
		m = n
		t.members[store] = m
	}
	m.card, m.address = c, address
}

// lost notes that a broker is gone, and forgets the one that is gone longest if there are too many.
func (t *table) lost(store state.StoreID, now time.Time) {
	m := t.members[store]
	if m == nil || m.dead {
		return
	}
	m.dead, m.since = true, now
	oldest, dead := state.StoreID{}, 0
	for id, m := range t.members {
		if !m.dead {
			continue
		}
		dead++
		if o := t.members[oldest]; o == nil || m.since.Before(o.since) {
			oldest = id
		}
	}
	if dead > maxDead {
		delete(t.members, oldest)
	}
}

func (t *table) note(n note) {
	m := t.members[n.Store]
	if m != nil && m.card.Run == n.Run && n.Seq > m.note.Seq {
		m.note = n
	}
}

// cluster returns the one cluster that this broker or, while it belongs to none, anybody it sees belongs to; zero if
// none does.
func (t *table) cluster() [16]byte {
	if m := t.members[t.self]; m != nil && m.card.Cluster != ([16]byte{}) {
		return m.card.Cluster
	}
	for _, m := range t.members {
		if !m.dead && m.card.Cluster != ([16]byte{}) {
			return m.card.Cluster
		}
	}
	return [16]byte{}
}

// foreign says why a card must not come into this table; empty: it may.
func (t *table) foreign(of string, c card, address string) string {
	ours := t.cluster()
	switch {
	case c.Of != of:
		return fmt.Sprintf("broker %s at %s belongs to the cluster named %q, this one to %q", c.Name, address, c.Of, of)
	case ours != [16]byte{} && c.Cluster != [16]byte{} && c.Cluster != ours:
		return fmt.Sprintf("broker %s at %s belongs to cluster %x, this one to cluster %x: both are named %q", c.Name, address, c.Cluster, ours, of)
	}
	return ""
}

// at returns who gossips at one of the addresses.
func (t *table) at(addresses []string) []state.StoreID {
	var out []state.StoreID
	for id, m := range t.members {
		if !m.dead && slices.Contains(addresses, m.address) {
			out = append(out, id)
		}
	}
	return out
}

// list returns everyone, by store; patience is how long a broker may be silent before it is suspect.
func (t *table) list(now time.Time, patience time.Duration) []Member {
	out := make([]Member, 0, len(t.members))
	for id, m := range t.members {
		n := Member{
			Store: id, Name: m.card.Name, Cluster: m.card.Cluster, Addresses: m.card.Addresses, Gossip: m.address,
			Since: m.since, Load: m.note.Load, Expect: m.card.Expect,
		}
		switch {
		case m.dead:
			n.State = Dead
		case id != t.self && now.Sub(m.heard) > patience:
			n.State, n.Since = Suspect, m.heard.Add(patience)
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Member) int { return compareStores(a.Store, b.Store) })
	return out
}

func compareStores(a, b state.StoreID) int { return cmp.Compare(string(a[:]), string(b[:])) }

func gossipAddress(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), fmt.Sprint(port))
}
