package protocol

// The admin operations: the Op of an [Admin] frame. Argument and result are the
// types named beside it, msgpack in the body; the HTTP API carries the same as JSON.
const (
	OpTopicCreate   = "topic.create"          // TopicCreate → TopicCreated
	OpTopicList     = "topic.list"            // ListArgs → TopicList
	OpTopicDescribe = "topic.describe"        // TopicArgs → TopicDescription
	OpTopicDelete   = "topic.delete"          // TopicArgs → Done
	OpTopicSet      = "topic.set"             // TopicSet → Done
	OpTopicTruncate = "topic.truncate"        // Truncate → Truncated
	OpTopicVerify   = "topic.verify"          // TopicArgs → VerifyReport
	OpTopicResolve  = "topic.resolve"         // Resolve → Done
	OpTopicMove     = "topic.move"            // TopicMove → TopicMoved
	OpSubCreate     = "subscription.create"   // SubCreate → Done
	OpSubList       = "subscription.list"     // TopicArgs → SubList
	OpSubDescribe   = "subscription.describe" // SubArgs → SubDescription
	OpSubDelete     = "subscription.delete"   // SubArgs → Done
	OpSubReset      = "subscription.reset"    // SubReset → Done
	OpSubSet        = "subscription.set"      // SubCreate → Done
)

// TopicArgs names a topic, or a partition of it.
type TopicArgs struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"` // -1: all
	Force     bool   `msgpack:"f,omitempty" json:"force,omitempty"`
}

// ListArgs selects topics by prefix of the full name; After is the last name of the page before.
type ListArgs struct {
	Prefix string `msgpack:"p,omitempty" json:"prefix,omitempty"`
	After  string `msgpack:"a,omitempty" json:"after,omitempty"`
	Limit  int    `msgpack:"l,omitempty" json:"limit,omitempty"` // 0: 1,000; at most 10,000
}

// TopicCreate makes a topic; doing it twice with the same settings is no error.
type TopicCreate struct {
	Topic  string      `msgpack:"t" json:"topic"`
	Config TopicConfig `msgpack:"c" json:"config"`
}

// TopicCreated answers TopicCreate.
type TopicCreated struct {
	Topic   string      `msgpack:"t" json:"topic"`
	ID      string      `msgpack:"id" json:"id"` // 32 hex digits
	Created bool        `msgpack:"c" json:"created"`
	Config  TopicConfig `msgpack:"cf" json:"config"`
}

// TopicSummary is a row of topic list.
type TopicSummary struct {
	Topic          string `msgpack:"t" json:"topic"`
	ID             string `msgpack:"id" json:"id"`
	Reliable       bool   `msgpack:"r" json:"reliable"`
	Durability     string `msgpack:"d" json:"durability"`
	Partitions     int    `msgpack:"p" json:"partitions"`
	Subscriptions  int    `msgpack:"s" json:"subscriptions"`
	RetentionMS    int64  `msgpack:"rt,omitempty" json:"retention_ms,omitempty"`
	RetentionBytes int64  `msgpack:"rb,omitempty" json:"retention_bytes,omitempty"`
	RetentionAcked bool   `msgpack:"ra,omitempty" json:"retention_acked,omitempty"`
}

// TopicList is a page of topics in name order; More says that there are others behind it.
type TopicList struct {
	Topics []TopicSummary `msgpack:"t" json:"topics"`
	More   bool           `msgpack:"m,omitempty" json:"more,omitempty"`
}

// TopicDescription is what topic describe prints.
type TopicDescription struct {
	Topic          string                 `msgpack:"t" json:"topic"`
	ID             string                 `msgpack:"id" json:"id"`
	Reliable       bool                   `msgpack:"r" json:"reliable"`
	Durability     string                 `msgpack:"d" json:"durability"`
	RetentionMS    int64                  `msgpack:"rt,omitempty" json:"retention_ms,omitempty"`
	RetentionBytes int64                  `msgpack:"rb,omitempty" json:"retention_bytes,omitempty"`
	RetentionAcked bool                   `msgpack:"ra,omitempty" json:"retention_acked,omitempty"` // what every subscription has acknowledged may go
	Sync           string                 `msgpack:"sy,omitempty" json:"sync,omitempty"`            // interval: acks survive a process kill only
	Partitions     []PartitionDescription `msgpack:"p" json:"partitions"`
	Subscriptions  []SubDescription       `msgpack:"s" json:"subscriptions"`
}

// PartitionDescription is one partition of a topic as its owner sees it.
type PartitionDescription struct {
	Partition    int                `msgpack:"p" json:"partition"`
	Owner        string             `msgpack:"o" json:"owner"`
	Epoch        uint64             `msgpack:"e" json:"epoch"`
	State        string             `msgpack:"st" json:"state"` // open, opening, foreign, failed …
	Reason       string             `msgpack:"re,omitempty" json:"reason,omitempty"`
	LogStart     uint64             `msgpack:"ls" json:"log_start"`
	NextOffset   uint64             `msgpack:"n" json:"next_offset"`
	CommittedEnd uint64             `msgpack:"c" json:"committed_end"`
	ColdEnd      uint64             `msgpack:"ce" json:"cold_end"`
	Protected    uint64             `msgpack:"pf" json:"protected_from"`
	Ceiling      uint64             `msgpack:"cl" json:"ceiling"`
	Bytes        int64              `msgpack:"b" json:"bytes"`
	Segments     int                `msgpack:"sg" json:"segments"`
	Producers    int                `msgpack:"pr" json:"producers"`
	Warm         *WarmDescription   `msgpack:"w,omitempty" json:"warm,omitempty"`
	Ranges       []RangeDescription `msgpack:"r" json:"ranges"`
	// Superseded are offsets whose messages were stored again, at later ones, while the broker that had them was away.
	Superseded []OffsetSpan `msgpack:"su,omitempty" json:"superseded,omitempty"`
}

// OffsetSpan is the offsets from Start up to, not including, End.
type OffsetSpan struct {
	Start uint64 `msgpack:"s" json:"start"`
	End   uint64 `msgpack:"n" json:"end"`
}

// WarmDescription is the state of the write buffer of a partition.
type WarmDescription struct {
	Generation uint64 `msgpack:"g" json:"generation"`
	Whole      bool   `msgpack:"w" json:"whole"`
}

// RangeDescription is a range of offsets that one epoch, or several joined, wrote.
type RangeDescription struct {
	Epoch  uint64   `msgpack:"e" json:"epoch"`
	Start  uint64   `msgpack:"s" json:"start"`
	End    uint64   `msgpack:"n" json:"end"` // of an open range the next offset
	Status string   `msgpack:"st" json:"status"`
	Stores []string `msgpack:"r" json:"stores"`
	Detail string   `msgpack:"d,omitempty" json:"detail,omitempty"` // of damage: the file, the position, what is wrong
}

// TopicSet changes settings; nil fields stay.
type TopicSet struct {
	Topic          string  `msgpack:"t" json:"topic"`
	RetentionMS    *int64  `msgpack:"rt,omitempty" json:"retention_ms,omitempty"`
	RetentionBytes *int64  `msgpack:"rb,omitempty" json:"retention_bytes,omitempty"`
	RetentionAcked *bool   `msgpack:"ra,omitempty" json:"retention_acked,omitempty"`
	Durability     *string `msgpack:"d,omitempty" json:"durability,omitempty"`
}

// Truncate removes what lies before an offset, or with DryRun says what would go.
type Truncate struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"`
	Before    uint64 `msgpack:"b" json:"before"`
	DryRun    bool   `msgpack:"d,omitempty" json:"dry_run,omitempty"`
}

// Truncated answers Truncate.
type Truncated struct {
	Was      uint64 `msgpack:"w" json:"was"`       // log start before
	LogStart uint64 `msgpack:"l" json:"log_start"` // log start now, or what it would be
	Unacked  uint64 `msgpack:"u" json:"unacked"`   // messages below it that some subscription has not acknowledged
}

// Resolve settles ORPHANED or LOST ranges: lost, accept-gap or adopt.
type Resolve struct {
	Topic     string `msgpack:"t" json:"topic"`
	Partition int    `msgpack:"p" json:"partition"` // -1: all, without From and To
	From      uint64 `msgpack:"f" json:"from"`
	To        uint64 `msgpack:"to" json:"to"` // 0: every range of the partition
	How       string `msgpack:"h" json:"how"`
}

// VerifyReport is what topic verify found, partition by partition.
type VerifyReport struct {
	Partitions []VerifyPartition `msgpack:"p" json:"partitions"`
}

// VerifyPartition is the outcome for one partition.
type VerifyPartition struct {
	Partition int             `msgpack:"p" json:"partition"`
	From      uint64          `msgpack:"f" json:"from"`
	To        uint64          `msgpack:"t" json:"to"`
	Messages  uint64          `msgpack:"m" json:"messages"`
	Bytes     int64           `msgpack:"b" json:"bytes"`
	Findings  []VerifyFinding `msgpack:"fi" json:"findings"`
	Notes     []VerifyNote    `msgpack:"no,omitempty" json:"notes,omitempty"` // what an operator has settled: nothing is wrong with it
}

// VerifyNote is what a verification says of offsets that were settled.
type VerifyNote struct {
	From uint64 `msgpack:"f" json:"from"`
	To   uint64 `msgpack:"t" json:"to"`
	What string `msgpack:"w" json:"what"`
}

// VerifyFinding is one thing that is wrong.
type VerifyFinding struct {
	From uint64 `msgpack:"f" json:"from"`
	To   uint64 `msgpack:"t" json:"to"`
	Tier string `msgpack:"ti" json:"tier"`
	File string `msgpack:"fi" json:"file"`
	At   int64  `msgpack:"a" json:"at"` // byte position in the file
	What string `msgpack:"w" json:"what"`
}

// SubArgs names a subscription of a topic.
type SubArgs struct {
	Topic        string `msgpack:"t" json:"topic"`
	Subscription string `msgpack:"s" json:"subscription"`
	Force        bool   `msgpack:"f,omitempty" json:"force,omitempty"` // also with consumers attached
}

// SubCreate makes a subscription, or sets the options of one.
type SubCreate struct {
	Topic        string           `msgpack:"t" json:"topic"`
	Subscription string           `msgpack:"s" json:"subscription"`
	Type         SubscriptionType `msgpack:"ty" json:"type"`
	Start        Position         `msgpack:"st" json:"start"`
	Options      SubOptions       `msgpack:"op" json:"options"`
}

// SubReset moves a subscription on every partition.
type SubReset struct {
	Topic        string   `msgpack:"t" json:"topic"`
	Subscription string   `msgpack:"s" json:"subscription"`
	Partition    int      `msgpack:"p" json:"partition"` // -1: all
	To           Position `msgpack:"to" json:"to"`
}

// SubList is the subscriptions of a topic.
type SubList struct {
	Subscriptions []SubDescription `msgpack:"s" json:"subscriptions"`
}

// SubDescription is what subscription describe prints.
type SubDescription struct {
	Name       string         `msgpack:"n" json:"name"`
	Type       string         `msgpack:"t" json:"type"`
	Options    SubOptions     `msgpack:"o" json:"options"`
	Partitions []SubPartition `msgpack:"p" json:"partitions"`
}

// SubPartition is a subscription's state on one partition.
type SubPartition struct {
	Partition  int           `msgpack:"p" json:"partition"`
	Cursor     uint64        `msgpack:"c" json:"cursor"`
	Lag        uint64        `msgpack:"l" json:"lag"`                           // messages that can be read and are not acknowledged
	Orphaned   uint64        `msgpack:"or,omitempty" json:"orphaned,omitempty"` // at most so many more may come back with a broker that is away
	InFlight   uint64        `msgpack:"i" json:"in_flight"`
	Redeliver  uint64        `msgpack:"r" json:"redelivering"`
	Ranges     int           `msgpack:"ra" json:"ack_ranges"`
	Skipped    uint64        `msgpack:"sk" json:"skipped"` // messages passed over: lost, damaged or trimmed
	Generation uint64        `msgpack:"g" json:"generation"`
	State      string        `msgpack:"s" json:"state"` // why nothing is being delivered, or delivering
	Consumers  []SubConsumer `msgpack:"co" json:"consumers"`
}

// SubConsumer is a consumer attached to a subscription.
type SubConsumer struct {
	Name     string `msgpack:"n" json:"name"`
	Address  string `msgpack:"a" json:"address"`
	Credit   uint64 `msgpack:"c" json:"credit"`
	InFlight uint64 `msgpack:"i" json:"in_flight"`
}

// Done answers an operation that returns nothing.
type Done struct{}
