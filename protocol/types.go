package protocol

import (
	"cmp"
	"fmt"
)

// Version is the protocol version this package speaks; HELLO carries the range
// a peer can speak and the answer the one that is used.
const Version = 1

// Type says what a frame is. Types are append-only. A request has the answer
// type one above it unless noted; any request may be answered by [TypeError].
type Type uint8

// The frame types.
const (
	TypeError Type = 1 // header [Error]; correlation id of the request, 0 for the connection

	TypeHello   Type = 2 // header [Hello]; the first frame of a connection
	TypeHelloOK Type = 3 // header [HelloOK]

	TypePing Type = 4 // no header; either side
	TypePong Type = 5

	TypeLookup   Type = 6 // header [Lookup]
	TypeLookupOK Type = 7 // header [LookupOK]

	TypeAdmin   Type = 8 // header [Admin]: an operation by name, its argument in the body
	TypeAdminOK Type = 9 // no header, the result in the body

	TypeOpenProducer   Type = 10 // header [OpenProducer]
	TypeOpenProducerOK Type = 11 // header [OpenProducerOK]
	TypeProduce        Type = 12 // header [Produce], body: one batch
	TypeProduceOK      Type = 13 // header [ProduceOK]; in the order of the requests of one producer
	TypeCloseProducer  Type = 14 // header [Handle]
	TypeClosed         Type = 15 // no header; answers CloseProducer and CloseConsumer

	TypeSubscribe     Type = 16 // header [Subscribe]
	TypeSubscribeOK   Type = 17 // header [SubscribeOK]
	TypeCredit        Type = 18 // header [Credit]; no answer
	TypeDeliver       Type = 19 // header [Deliver], body: one batch or part; broker to client, no answer
	TypeGap           Type = 20 // header [GapNotice]; broker to client, no answer
	TypeReceived      Type = 21 // header [Ranges]; no answer: the application has these, the ack timeout runs
	TypeAck           Type = 22 // header [Ack]; answered by TypeAckOK only when Confirm is set
	TypeAckOK         Type = 23 // header [AckOK]
	TypeNack          Type = 24 // header [Nack]; no answer
	TypeCloseConsumer Type = 26 // header [Handle]; answered by TypeClosed after what was not acknowledged is given back
	TypeSeek          Type = 28 // header [Seek]
	TypeSeekOK        Type = 29 // header [SeekOK]
	TypeUnsubscribed  Type = 30 // header [Detached]; broker to client: this consumer is no more, and why

	TypeFetch   Type = 32 // header [Fetch]
	TypeFetchOK Type = 33 // header [FetchOK], body: whole batches back to back

	TypeGoAway Type = 34 // header [Error]; broker to client: about to close, reconnect
)

// String is the name that docs and errors use.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("TYPE_%d", uint8(t))
}

// typeNames is indexed by type.
var typeNames = [...]string{
	TypeError: "ERROR", TypeHello: "HELLO", TypeHelloOK: "HELLO_OK", TypePing: "PING", TypePong: "PONG",
	TypeLookup: "LOOKUP", TypeLookupOK: "LOOKUP_OK", TypeAdmin: "ADMIN", TypeAdminOK: "ADMIN_OK",
	TypeOpenProducer: "OPEN_PRODUCER", TypeOpenProducerOK: "OPEN_PRODUCER_OK", TypeProduce: "PRODUCE",
	TypeProduceOK: "PRODUCE_OK", TypeCloseProducer: "CLOSE_PRODUCER", TypeClosed: "CLOSED",
	TypeSubscribe: "SUBSCRIBE", TypeSubscribeOK: "SUBSCRIBE_OK", TypeCredit: "CREDIT", TypeDeliver: "DELIVER",
	TypeGap: "GAP", TypeReceived: "RECEIVED", TypeAck: "ACK", TypeAckOK: "ACK_OK", TypeNack: "NACK",
	TypeCloseConsumer: "CLOSE_CONSUMER", TypeSeek: "SEEK", TypeSeekOK: "SEEK_OK", TypeUnsubscribed: "UNSUBSCRIBED",
	TypeFetch: "FETCH", TypeFetchOK: "FETCH_OK", TypeGoAway: "GO_AWAY",
}

// Position says where reading begins.
type Position struct {
	Kind   PositionKind `msgpack:"k"`
	Offset uint64       `msgpack:"o,omitempty"`
	Time   int64        `msgpack:"t,omitempty"` // append time, ms since 1970: the first message at or after it
}

// PositionKind is one of Latest, Earliest, AtOffset, AtTime.
type PositionKind uint8

// The kinds of position.
const (
	Latest PositionKind = iota
	Earliest
	AtOffset
	AtTime
)

// SubscriptionType says how a subscription shares messages among its consumers.
type SubscriptionType uint8

// The types of subscription.
const (
	Exclusive SubscriptionType = iota
	Shared
	Failover
	KeyShared
)

// String is the name that flags and output use.
func (t SubscriptionType) String() string {
	names := [...]string{"exclusive", "shared", "failover", "key-shared"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Hello opens a connection.
type Hello struct {
	Cookie     uint64   `msgpack:"m"` // Magic: tells a stray client of another protocol at once
	MinVersion uint16   `msgpack:"lo"`
	MaxVersion uint16   `msgpack:"hi"`
	Client     string   `msgpack:"c,omitempty"` // name and version, for logs
	Auth       string   `msgpack:"a,omitempty"` // method: "", "token", "key"
	Secret     []byte   `msgpack:"s,omitempty"`
	Features   []string `msgpack:"f,omitempty"`
}

// Magic is the cookie of every Hello: the bytes "DANUBE1\n" read little-endian.
const Magic uint64 = 0x0a314542554e4144

// HelloOK names the broker and what it accepts.
type HelloOK struct {
	Version     uint16   `msgpack:"v"`
	Broker      string   `msgpack:"b"`
	Cluster     string   `msgpack:"c"`
	Release     string   `msgpack:"r"` // the binary's version
	MaxFrame    int      `msgpack:"mf"`
	MaxMessage  int      `msgpack:"mm"`
	MaxBatch    int      `msgpack:"mb"`
	Window      int      `msgpack:"w"`  // produce frames in flight on this connection, at most
	HeartbeatMS int      `msgpack:"hb"` // either side sends a Ping when it sent nothing for so long
	Features    []string `msgpack:"f,omitempty"`
}

// TopicConfig is what a topic is made with. Zero values mean the cluster's defaults.
type TopicConfig struct {
	Partitions     int    `msgpack:"p,omitempty" json:"partitions"`
	NonReliable    bool   `msgpack:"nr,omitempty" json:"-"`
	Durability     string `msgpack:"d,omitempty" json:"durability"` // local, warm, object
	RetentionMS    int64  `msgpack:"rt,omitempty" json:"retention_ms,omitempty"`
	RetentionBytes int64  `msgpack:"rb,omitempty" json:"retention_bytes,omitempty"`
	RetentionAcked bool   `msgpack:"ra,omitempty" json:"retention_acked,omitempty"` // what every subscription has acknowledged may go
}

// Lookup asks for the partitions of a topic and who owns them. With Create a
// topic that does not exist is made with these settings, if the cluster allows it;
// an existing one is answered as it is.
type Lookup struct {
	Topic  string       `msgpack:"t"`
	Create *TopicConfig `msgpack:"c,omitempty"`
}

// LookupOK answers Lookup. Partition n is Partitions[n].
type LookupOK struct {
	ID         []byte           `msgpack:"id"` // 16 bytes
	Name       string           `msgpack:"n"`  // the full name, with its namespace
	Reliable   bool             `msgpack:"r"`
	Durability string           `msgpack:"d"`
	Created    bool             `msgpack:"c,omitempty"`
	Partitions []PartitionOwner `msgpack:"p"`
}

// PartitionOwner says who serves a partition.
type PartitionOwner struct {
	Broker  string `msgpack:"b"`
	Address string `msgpack:"a"` // host:port of its client listener
	Epoch   uint64 `msgpack:"e"`
}

// OpenProducer opens or re-opens a producer's session on one partition (R17).
type OpenProducer struct {
	Topic     string `msgpack:"t"`
	Partition int    `msgpack:"p"`
	Epoch     uint64 `msgpack:"e"`           // 0: whichever is current
	Name      string `msgpack:"n,omitempty"` // empty for an unnamed producer
	Producer  uint64 `msgpack:"id"`
	Session   uint32 `msgpack:"s"`
	Lowest    uint64 `msgpack:"l"`           // lowest sequence not acknowledged
	Exclusive bool   `msgpack:"x,omitempty"` // no other producer on the partition
}

// OpenProducerOK gives the handle for Produce frames on this connection.
type OpenProducerOK struct {
	Handle uint32 `msgpack:"h"`
	Epoch  uint64 `msgpack:"e"`
	Stored bool   `msgpack:"st,omitempty"` // Last is meant
	Last   uint64 `msgpack:"l,omitempty"`  // last sequence stored of this producer and session
}

// Handle names a producer or consumer of this connection.
type Handle struct {
	Handle uint32 `msgpack:"h"`
}

// Produce sends one batch.
type Produce struct {
	Handle uint32 `msgpack:"h"`
	Epoch  uint64 `msgpack:"e"`
}

// ProduceOK acknowledges one batch: message i has offset Base + i.
type ProduceOK struct {
	Base       uint64 `msgpack:"o"`
	AppendTime int64  `msgpack:"t"`
	Duplicate  bool   `msgpack:"d,omitempty"` // it was stored before; Base is where
	Level      uint8  `msgpack:"l,omitempty"` // [Level]; what this acknowledgement survives
}

// Level is what an acknowledgement survives.
type Level uint8

// The levels: the durability of the topic, or weaker ones that are always named.
const (
	LevelLocal    Level = iota
	LevelInterval       // wal.sync: interval: a kill of the process only
	LevelWarm
	LevelObject
	LevelNone // a non-reliable topic
)

// Subscribe attaches a consumer to a subscription of one partition, making the
// subscription when it does not exist. Type, Start and Options count only then.
type Subscribe struct {
	Topic        string           `msgpack:"t"`
	Partition    int              `msgpack:"p"`
	Epoch        uint64           `msgpack:"e"`
	Subscription string           `msgpack:"s"`
	Consumer     string           `msgpack:"c"`
	Type         SubscriptionType `msgpack:"ty"`
	Start        Position         `msgpack:"st"`
	Existing     bool             `msgpack:"x,omitempty"` // do not make it
	Priority     int              `msgpack:"pr,omitempty"`
	Filters      []string         `msgpack:"f,omitempty"`
	Credit       uint32           `msgpack:"cr"` // messages the broker may send at once
	Options      SubOptions       `msgpack:"op"`
}

// SubOptions are a subscription's settings; zero means the default.
type SubOptions struct {
	MaxUnacked    int   `msgpack:"mu,omitempty" json:"max_unacked,omitempty"`
	AckTimeoutMS  int64 `msgpack:"at,omitempty" json:"ack_timeout_ms,omitempty"`
	MaxRedeliver  int   `msgpack:"mr,omitempty" json:"max_redeliveries,omitempty"`
	BackoffMS     int64 `msgpack:"b,omitempty" json:"backoff_ms,omitempty"`
	BackoffCapMS  int64 `msgpack:"bc,omitempty" json:"backoff_cap_ms,omitempty"`
	BackoffFixed  bool  `msgpack:"bf,omitempty" json:"backoff_fixed,omitempty"`
	NoDurableAcks bool  `msgpack:"nd,omitempty" json:"-"`
}

// WithDefaults is o with what holds where it is zero.
func (o SubOptions) WithDefaults() SubOptions {
	o.MaxUnacked = cmp.Or(o.MaxUnacked, 1000)
	o.AckTimeoutMS = cmp.Or(o.AckTimeoutMS, 30_000)
	o.MaxRedeliver = cmp.Or(o.MaxRedeliver, 5)
	o.BackoffMS = cmp.Or(o.BackoffMS, 1000)
	o.BackoffCapMS = cmp.Or(o.BackoffCapMS, 60_000)
	return o
}

// SubscribeOK gives the handle for the consumer's frames on this connection.
type SubscribeOK struct {
	Handle     uint32           `msgpack:"h"`
	Epoch      uint64           `msgpack:"e"`
	Created    bool             `msgpack:"c,omitempty"`
	Type       SubscriptionType `msgpack:"ty"`
	Cursor     uint64           `msgpack:"cu"` // acknowledged prefix
	Generation uint64           `msgpack:"g"`
	MaxUnacked int              `msgpack:"mu"`
}

// Credit lets the broker deliver so many messages more to a consumer.
type Credit struct {
	Handle   uint32 `msgpack:"h"`
	Messages uint32 `msgpack:"m"`
}

// Deliver hands messages to a consumer: the body is a whole batch, of which only
// the messages with offsets in [First, First+Count) are meant, or a part.
type Deliver struct {
	Handle     uint32 `msgpack:"h"`
	Generation uint64 `msgpack:"g"`
	First      uint64 `msgpack:"f"` // offset of the first message meant
	Count      uint32 `msgpack:"n"` // of messages meant
	Attempt    uint32 `msgpack:"a"` // 1 for the first delivery
	Late       bool   `msgpack:"l,omitempty"`
}

// GapNotice says that the offsets [From, To) will not come (now), and why.
type GapNotice struct {
	Handle uint32 `msgpack:"h"`
	From   uint64 `msgpack:"f"`
	To     uint64 `msgpack:"t"`
	Status string `msgpack:"s"` // trimmed, lost, orphaned, damaged
}

// Range is the offsets [From, To).
type Range struct {
	From uint64
	To   uint64
}

// Ranges names offsets of a consumer. On the wire: alternating From and To.
type Ranges struct {
	Handle     uint32  `msgpack:"h"`
	Generation uint64  `msgpack:"g"`
	Ranges     []Range `msgpack:"r"`
}

// Ack acknowledges offsets of a consumer, or with UpTo all that were delivered to it below Ranges[0].To.
type Ack struct {
	Ranges
	UpTo    bool `msgpack:"u,omitempty"`
	Confirm bool `msgpack:"c,omitempty"` // answer after the cursor is committed
}

// AckOK answers a confirmed Ack.
type AckOK struct {
	Stale uint64 `msgpack:"s,omitempty"` // messages named that were no longer this consumer's
}

// Nack gives offsets back for redelivery.
type Nack struct {
	Ranges
	DelayMS int64  `msgpack:"d,omitempty"` // 0: the subscription's backoff
	Reason  string `msgpack:"w,omitempty"`
}

// Seek moves a subscription's cursor.
type Seek struct {
	Handle uint32   `msgpack:"h"`
	To     Position `msgpack:"p"`
}

// SeekOK says where the subscription stands now. What is delivered with an older generation is to be dropped.
type SeekOK struct {
	Cursor     uint64 `msgpack:"cu"`
	Generation uint64 `msgpack:"g"`
}

// Detached says that a consumer was ended by the broker: taken over by another
// of the same name, its subscription or topic deleted, moved.
type Detached struct {
	Handle uint32 `msgpack:"h"`
	Err    Error  `msgpack:"e"`
}

// Fetch reads batches of a partition without a subscription.
type Fetch struct {
	Topic     string   `msgpack:"t"`
	Partition int      `msgpack:"p"`
	Epoch     uint64   `msgpack:"e"`
	From      Position `msgpack:"f"`
	MaxBytes  int      `msgpack:"mb"` // at least one batch is sent
	WaitMS    int      `msgpack:"w"`  // how long to wait at the end of the log for something to come
}

// FetchOK says that the body covers the offsets [From, To) and Next is where to
// go on: more than To when a gap lies between, which GapStatus names.
type FetchOK struct {
	Epoch     uint64 `msgpack:"e"`
	From      uint64 `msgpack:"f"` // first offset meant; the first batch may begin before it
	To        uint64 `msgpack:"t"`
	Next      uint64 `msgpack:"n"`
	LogStart  uint64 `msgpack:"ls"`
	Committed uint64 `msgpack:"c"`
	GapStatus string `msgpack:"g,omitempty"`
}

// Admin calls an operation; its argument is the body, msgpack of the type the operation documents.
type Admin struct {
	Op string `msgpack:"op"`
}

// Error is a coded error as it goes over the wire.
type Error struct {
	Code    Code   `msgpack:"c"`
	Text    string `msgpack:"m,omitempty"` // what failed and why, for a person
	Hint    string `msgpack:"h,omitempty"` // what to do about it
	Broker  string `msgpack:"b,omitempty"` // MOVED: the owner's name
	Address string `msgpack:"a,omitempty"` // MOVED: host:port of the owner
	Epoch   uint64 `msgpack:"e,omitempty"` // MOVED, UNKNOWN_EPOCH: the current epoch
	Want    uint64 `msgpack:"w,omitempty"` // BAD_SEQUENCE: the sequence expected next; ABOVE_END: the end; BELOW_LOG_START: the start
	Request string `msgpack:"r,omitempty"` // id that stands in the broker's log too
}
