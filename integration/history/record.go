package history

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Mode is how a Consumer reads.
type Mode uint8

// The modes: a Reader keeps no state in the broker; Exclusive (and failover) subscriptions deliver all in order to one
// consumer at a time; Shared ones spread messages over their consumers.
const (
	Reader Mode = iota
	Exclusive
	Shared
)

// Run is the record of one run. Make it with New.
type Run struct {
	id    uint32
	seed  uint64
	clock func() time.Duration

	mu        sync.Mutex
	parts     map[partKey]uint32
	names     []partKey
	producers []*Producer
	consumers []*Consumer
	faults    []*Fault
}

type partKey struct {
	topic     string
	partition int
}

// New returns an empty record whose clock begins now. The seed decides the payloads.
func New(seed uint64) *Run {
	start := time.Now()
	return &Run{
		id:    uint32(seed) ^ uint32(start.UnixNano()),
		seed:  seed,
		clock: func() time.Duration { return time.Since(start) },
		parts: map[partKey]uint32{},
	}
}

// part gives a partition its number in this record.
func (r *Run) part(topic string, partition int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := partKey{topic, partition}
	n, ok := r.parts[key]
	if !ok {
		n = uint32(len(r.names))
		r.parts[key] = n
		r.names = append(r.names, key)
	}
	return n
}

type outcome uint8

const (
	unknown   outcome = iota // no answer, or one that says nothing; also a send that never ended
	acked                    // stored, with an offset
	notStored                // an error that promises that nothing was stored
)

// send is one message from the call to its answer.
type send struct {
	begin, end time.Duration
	offset     int64
	part       uint32
	sum        uint32
	outcome    outcome
}

// Producer records the sends of one producer to one topic.
type Producer struct {
	run   *Run
	id    uint32
	topic string

	mu    sync.Mutex
	rnd   *rand.Rand
	sends []send
	local map[int]uint32 // partition to its number in the run, so that acks do not meet on the run's lock
}

// Producer begins the record of a producer to topic.
func (r *Run) Producer(topic string) *Producer {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := uint32(len(r.producers))
	p := &Producer{run: r, id: id, topic: topic, rnd: rand.New(rand.NewPCG(r.seed, uint64(id))), local: map[int]uint32{}}
	r.producers = append(r.producers, p)
	return p
}

// Begin makes the next payload, of at least size bytes when size is above sixty or so, and notes that its send begins
// now. The payload is the caller's.
func (p *Producer) Begin(size int) (seq uint64, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seq = uint64(len(p.sends))
	payload, sum := encode(p.run.id, value{p.id, seq}, size, p.rnd)
	p.sends = append(p.sends, send{begin: p.run.clock(), end: -1, offset: -1, sum: sum})
	return seq, payload
}

// Acked notes that the send was acknowledged at offset of partition.
func (p *Producer) Acked(seq uint64, partition int, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	part, ok := p.local[partition]
	if !ok {
		part = p.run.part(p.topic, partition)
		p.local[partition] = part
	}
	s := &p.sends[seq]
	s.end, s.outcome, s.part, s.offset = p.run.clock(), acked, part, offset
}

// NotStored notes an answer that promises that the message was not stored and never will be.
func (p *Producer) NotStored(seq uint64) { p.ended(seq, notStored) }

// Unknown notes an answer that leaves open whether the message was stored.
func (p *Producer) Unknown(seq uint64) { p.ended(seq, unknown) }

func (p *Producer) ended(seq uint64, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sends[seq].end, p.sends[seq].outcome = p.run.clock(), o
}

// Counts says how many sends began and how many of them were acknowledged.
func (p *Producer) Counts() (begun, stored int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.sends {
		if p.sends[i].outcome == acked {
			stored++
		}
	}
	return len(p.sends), stored
}

type eventKind uint8

const (
	readEvent eventKind = iota
	gapEvent
	ackEvent
	ackUpToEvent
	confirmedEvent
	seekEvent
)

// event is one thing a consumer saw or did. For a gap, offset and to are its bounds.
type event struct {
	at          time.Duration
	offset, to  int64
	v           value
	part        uint32
	sum         uint32
	kind        eventKind
	redelivered bool
	late        bool
	foreign     bool
}

// Consumer records one consumer of a subscription, or one reader.
type Consumer struct {
	run          *Run
	name         string
	topic        string
	subscription string
	mode         Mode

	mu     sync.Mutex
	events []event
	local  map[int]uint32
}

// Consumer begins the record of a consumer; subscription is "" for a Reader. One that was ended and made anew by its
// application is a new Consumer; one whose client library reconnected by itself is the same.
func (r *Run) Consumer(name, topic, subscription string, mode Mode) *Consumer {
	c := &Consumer{run: r, name: name, topic: topic, subscription: subscription, mode: mode, local: map[int]uint32{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consumers = append(r.consumers, c)
	return c
}

// Delivery is what came with a message: both flags as the broker set them.
type Delivery struct {
	Partition   int
	Offset      int64
	Payload     []byte
	Redelivered bool // delivered before to this subscription
	Late        bool // of a range that the subscription had passed over
}

// Read notes that the application was handed a message. The payload is not kept.
func (c *Consumer) Read(d Delivery) {
	e := event{kind: readEvent, offset: d.Offset, redelivered: d.Redelivered, late: d.Late}
	var err error
	e.v, e.sum, err = decode(c.run.id, d.Payload)
	e.foreign = err != nil
	c.add(d.Partition, e)
}

// Gap notes that the broker named [from, to) as a gap in the partition.
func (c *Consumer) Gap(partition int, from, to int64) {
	c.add(partition, event{kind: gapEvent, offset: from, to: to})
}

// Acked notes that the application acknowledges one message. Call it before the acknowledgement is sent.
func (c *Consumer) Acked(partition int, offset int64) {
	c.add(partition, event{kind: ackEvent, offset: offset})
}

// AckedUpTo notes a cumulative acknowledgement of offset and all below. Call it before it is sent.
func (c *Consumer) AckedUpTo(partition int, offset int64) {
	c.add(partition, event{kind: ackUpToEvent, offset: offset})
}

// Confirmed notes that the broker confirmed that everything below prefix is acknowledged.
func (c *Consumer) Confirmed(partition int, prefix int64) {
	c.add(partition, event{kind: confirmedEvent, offset: prefix})
}

// Seek notes that the position was set to offset on purpose: what was confirmed or delivered before binds no more.
func (c *Consumer) Seek(partition int, offset int64) {
	c.add(partition, event{kind: seekEvent, offset: offset})
}

func (c *Consumer) add(partition int, e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	part, ok := c.local[partition]
	if !ok {
		part = c.run.part(c.topic, partition)
		c.local[partition] = part
	}
	e.part, e.at = part, c.run.clock()
	c.events = append(c.events, e)
}
