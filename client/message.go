package client

import (
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// Message is one message. A sender fills Key, Payload, Properties and, if it
// wants, PublishTime, DeliverAt and Schema; all are copied before the send
// returns. What is received has the other fields as well; its Key and Payload
// lie in memory that no one writes to again and that stays as long as they are held.
type Message struct {
	Key         []byte // routing key: messages of one key go to one partition; nil for none
	Payload     []byte
	Properties  []batch.Property
	PublishTime time.Time // the sender's clock; zero when sending: now
	DeliverAt   time.Time // not to be delivered before; zero: at once
	Schema      uint64

	Topic      string // full name
	Partition  int
	Offset     uint64 // within the partition; of a non-reliable topic it means nothing
	AppendTime time.Time
	// Deliveries is how often it was delivered, this time included, as far as the broker remembers; above one for what
	// this Consumer handed out over a connection that is over. 0 from a Reader.
	Deliveries int
	Late       bool // it was away when its turn came: with a lost broker, or with a consumer that gave it back unseen

	from       *stream // of a consumer
	generation uint64
}

// Result says where a message is stored.
type Result struct {
	Partition  int
	Offset     uint64
	AppendTime time.Time      // the broker's clock
	Duplicate  bool           // an earlier attempt had stored it; Offset is where
	Level      protocol.Level // what this acknowledgement survives
}

// fill makes a Message of a decoded one.
func (m *Message) fill(b *batch.Message, appendTime int64) {
	m.Key, m.Payload, m.Properties, m.Schema = b.Key, b.Payload, b.Properties, b.Schema
	m.PublishTime = time.UnixMilli(b.PublishTime)
	if b.DeliverAt != 0 {
		m.DeliverAt = time.UnixMilli(b.DeliverAt)
	}
	m.Offset = b.Offset
	m.AppendTime = time.UnixMilli(appendTime)
}

// encoded is what m takes of a batch, in bytes, within a few.
func (m *Message) encoded() int {
	n := len(m.Key) + len(m.Payload) + 24
	for i := range m.Properties {
		n += len(m.Properties[i].Name) + len(m.Properties[i].Value) + 4
	}
	return n
}
