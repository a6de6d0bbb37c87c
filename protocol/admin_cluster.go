package protocol

// The admin operations on the cluster and its brokers, which any broker answers.
const (
	OpStatus          = "cluster.status"   // none → Status
	OpClusterPromote  = "cluster.promote"  // BrokerArgs → Done
	OpClusterDemote   = "cluster.demote"   // BrokerArgs → Done
	OpClusterSnapshot = "cluster.snapshot" // SnapshotPage → SnapshotPage
	OpClusterRestore  = "cluster.restore"  // SnapshotPage → SnapshotPage
	OpClusterAudit    = "cluster.audit"    // none → AuditReport
	OpClusterAudited  = "cluster.audited"  // none → Done
	OpBrokerList      = "broker.list"      // none → BrokerList
	OpBrokerDescribe  = "broker.describe"  // BrokerArgs → BrokerDescription
	OpBrokerDrain     = "broker.drain"     // BrokerArgs → Done; broker.describe tells how far it is
	OpBrokerActivate  = "broker.activate"  // BrokerArgs → Done
	OpBrokerRemove    = "broker.remove"    // BrokerArgs → Done
)

// Status is the state of the cluster as one broker sees it.
type Status struct {
	Cluster    string         `msgpack:"c" json:"cluster"`
	ClusterID  string         `msgpack:"id" json:"cluster_id"`
	Broker     string         `msgpack:"b" json:"broker"`
	Release    string         `msgpack:"r" json:"release"`
	Leader     string         `msgpack:"l" json:"leader"` // name of the broker that leads, empty if none is known
	Ready      bool           `msgpack:"rd" json:"ready"`
	Degraded   []string       `msgpack:"d" json:"degraded"` // reasons, in words
	Topics     int            `msgpack:"t" json:"topics"`
	Brokers    []BrokerStatus `msgpack:"bs" json:"brokers"`
	Durability string         `msgpack:"du,omitempty" json:"durability,omitempty"` // the default level, in words
	History    uint16         `msgpack:"hi,omitempty" json:"history,omitempty"`
	Orphaned   int            `msgpack:"or,omitempty" json:"orphaned_ranges,omitempty"`
	Unplaced   int            `msgpack:"up,omitempty" json:"orphaned_on_no_broker,omitempty"` // of Orphaned those that no broker is known to have
	Moving     int            `msgpack:"mv,omitempty" json:"moving_partitions,omitempty"`
	Ownerless  int            `msgpack:"ow,omitempty" json:"partitions_without_owner,omitempty"`
	Orphans    []OrphanRange  `msgpack:"os,omitempty" json:"orphans,omitempty"` // all of those that Orphaned counts
	Moves      []MovingStatus `msgpack:"ms,omitempty" json:"moves,omitempty"`   // all of those that Moving counts
}

// OrphanRange is a range of offsets whose messages are away.
type OrphanRange struct {
	Topic     string   `msgpack:"t" json:"topic"`
	Partition int      `msgpack:"p" json:"partition"`
	Start     uint64   `msgpack:"s" json:"start"`
	End       uint64   `msgpack:"e" json:"end"`
	Brokers   []string `msgpack:"b" json:"brokers"` // that may come back with them; none: nobody is known to have any
}

// MovingStatus is a partition on its way to another broker.
type MovingStatus struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"`
	From      string `msgpack:"f" json:"from"`
	To        string `msgpack:"to" json:"to"`
}

// BrokerStatus is one broker of the cluster.
type BrokerStatus struct {
	Name        string `msgpack:"n" json:"name"`
	Store       string `msgpack:"s" json:"store"` // 32 hex digits
	Address     string `msgpack:"a" json:"address"`
	State       string `msgpack:"st" json:"state"` // joining, active, draining, drained, lost, stopped, removed
	Voter       bool   `msgpack:"v" json:"voter"`
	Incarnation uint64 `msgpack:"i" json:"incarnation"`
	Leader      bool   `msgpack:"l,omitempty" json:"leader,omitempty"`
	Peer        string `msgpack:"p,omitempty" json:"peer,omitempty"`     // host:port for other brokers
	HTTP        string `msgpack:"h,omitempty" json:"http,omitempty"`     // host:port
	Gossip      string `msgpack:"g,omitempty" json:"gossip,omitempty"`   // alive, suspect, dead or left, as this broker sees it
	Seen        string `msgpack:"se,omitempty" json:"seen,omitempty"`    // answers, starting or silent, when it was asked for this; a stopped one is not asked
	Partitions  int    `msgpack:"pa,omitempty" json:"partitions"`        // owned
	OnlyCopies  int    `msgpack:"oc,omitempty" json:"only_copies"`       // ranges whose only copy lies there, without those that it says are empty
	Applied     uint64 `msgpack:"ap,omitempty" json:"applied,omitempty"` // index of the metadata it has applied; absent where it does not say
	Reason      string `msgpack:"re,omitempty" json:"reason,omitempty"`
}

// BrokerArgs names a broker by its name or by the hex digits of its store's id.
type BrokerArgs struct {
	Broker string `msgpack:"b" json:"broker"`
	Lose   bool   `msgpack:"l,omitempty" json:"lose,omitempty"` // remove: give up ranges whose only copy is there
}

// BrokerList is every broker that is not removed.
type BrokerList struct {
	Brokers []BrokerStatus `msgpack:"b" json:"brokers"`
}

// BrokerDescription is what broker describe prints.
type BrokerDescription struct {
	BrokerStatus `msgpack:",inline"`
	Owned        []BrokerPartition `msgpack:"ow" json:"owned"`       // at most 1,000
	Only         []BrokerRange     `msgpack:"on" json:"only_ranges"` // whose only copy lies there, at most 1,000
}

// BrokerPartition is a partition that a broker owns.
type BrokerPartition struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"`
	Epoch     uint64 `msgpack:"e" json:"epoch"`
	State     string `msgpack:"s" json:"state"`
}

// BrokerRange is a range of a partition that lies on a broker.
type BrokerRange struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"`
	Start     uint64 `msgpack:"s" json:"start"`
	End       uint64 `msgpack:"e" json:"end"` // of an OPEN range what its owner has last made known: it grows
	Status    string `msgpack:"st" json:"status"`
}

// TopicMove moves partitions to a broker; an empty To lets the cluster choose.
type TopicMove struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"` // -1: all
	To        string `msgpack:"to,omitempty" json:"to,omitempty"`
}

// TopicMoved answers TopicMove when every target serves.
type TopicMoved struct {
	Partitions []PartitionMoved `msgpack:"p" json:"partitions"`
}

// PartitionMoved is one partition's move.
type PartitionMoved struct {
	Partition int    `msgpack:"p" json:"partition"`
	From      string `msgpack:"f" json:"from"` // names of brokers
	To        string `msgpack:"t" json:"to"`
	Epoch     uint64 `msgpack:"e" json:"epoch"`
	MovedAt   uint64 `msgpack:"m" json:"moved_at"` // the offset the new epoch begins at
}

// SnapshotPage carries the metadata in pages: of a snapshot the broker fills Data from Offset on; of a restore the
// caller does, and the last page carries it out; its answer names the topics that there were and are no more.
type SnapshotPage struct {
	ID     string `msgpack:"i,omitempty" json:"id,omitempty"` // names the transfer; empty begins one
	Offset int64  `msgpack:"o" json:"offset"`
	Size   int64  `msgpack:"s" json:"size"` // of the whole
	Data   []byte `msgpack:"d,omitempty" json:"data,omitempty"`
	Last   bool   `msgpack:"l,omitempty" json:"last,omitempty"`
	// Vanished are the topics that a restore took away, by name: the first 1,000 of Gone.
	Vanished []string `msgpack:"v,omitempty" json:"vanished,omitempty"`
	Gone     int      `msgpack:"g,omitempty" json:"gone,omitempty"`
}

// AuditReport compares the store of the cold tier with the catalogs, both ways.
type AuditReport struct {
	Store    string         `msgpack:"s" json:"store"`
	Tallies  []AuditTally   `msgpack:"t" json:"tallies"`
	Findings []AuditFinding `msgpack:"f" json:"findings"`                 // what is not sound, the first 1,000
	More     int            `msgpack:"m,omitempty" json:"more,omitempty"` // findings that are left out
	// Awaited: until somebody says cluster.audited nothing is deleted that the metadata of before a rebuild, restore or
	// recovery may have known of.
	Awaited bool `msgpack:"w,omitempty" json:"awaited,omitempty"`
}

// AuditTally counts the objects of one verdict.
type AuditTally struct {
	Verdict string `msgpack:"v" json:"verdict"`
	Sound   bool   `msgpack:"o" json:"sound"` // nobody has to do anything about them
	Objects int64  `msgpack:"n" json:"objects"`
	Bytes   int64  `msgpack:"b" json:"bytes"`
}

// AuditFinding is an object that is not as it should be.
type AuditFinding struct {
	Key     string `msgpack:"k" json:"key"`
	Verdict string `msgpack:"v" json:"verdict"`
	Bytes   int64  `msgpack:"b" json:"bytes"` // in the store
	Want    int64  `msgpack:"w" json:"want"`  // by the catalogs
}
