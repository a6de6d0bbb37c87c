package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// Topics are made on every broker, wherever they were asked for, and a client
// reaches each through whichever broker it dialled.
func TestClientReachesTopicsOnEveryBroker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	owners := map[int]int{}
	for i := range 6 {
		topic := fmt.Sprintf("topic-%d", i)
		c := f.dial(i % 3)
		publish(t, c, topic, 0, 50)
		owner := f.owner(topic, 0)
		owners[owner]++
		consume(t, f.dial((owner+1)%3), topic+"/s", 0, 50)
		consume(t, f.dial((owner+2)%3), topic+"/t", 0, 50)
	}
	if len(owners) != 3 {
		t.Errorf("topics by owner: %v", owners)
	}
}

// One topic of several partitions: positions are found on the brokers that own them.
func TestPartitionsOnSeveralBrokers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	c := f.dial(0)
	p, err := c.Producer(t.Context(), "spread", client.ProducerConfig{Create: &protocol.TopicConfig{Partitions: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := p.Send(t.Context(), client.Message{Payload: []byte{byte(i)}, Key: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	cons := consumer(t, f.dial(1), "spread", client.ConsumerConfig{Subscription: "s", From: earliest})
	seen := map[byte]bool{}
	for range 40 {
		m := receive(t, cons)
		seen[m.Payload[0]] = true
		if err := cons.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d of 40 messages", len(seen))
	}
	closeConsumer(t, cons)
	if f.owner("spread", 0) == f.owner("spread", 1) && f.owner("spread", 1) == f.owner("spread", 2) {
		t.Error("all partitions are on one broker")
	}
}

// A broker that is not the owner says who is, with the epoch; one that has not
// applied yet what the client knows waits a moment instead of refusing (R4).
func TestRedirectNamesTheOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	c := f.dial(0)
	publish(t, c, "elsewhere", 0, 1)
	owner := f.owner("elsewhere", 0)
	raw := rawDial(t, f.nodes[1-owner].client)
	raw.write(protocol.AppendFrame(nil, protocol.TypeOpenProducer, 5, &protocol.OpenProducer{Topic: "elsewhere", Producer: 7, Session: 1}, nil))
	e := raw.refusal()
	if e.Code != protocol.CodeMoved || e.Broker != fmt.Sprintf("n%d", owner+1) || e.Address != f.nodes[owner].client || e.Epoch != 1 {
		t.Errorf("refused with %+v", e)
	}
	began := time.Now()
	raw.write(protocol.AppendFrame(nil, protocol.TypeOpenProducer, 6, &protocol.OpenProducer{Topic: "elsewhere", Epoch: 9, Producer: 7, Session: 1}, nil))
	if e := raw.refusal(); e.Code != protocol.CodeUnknownEpoch || e.Epoch != 1 || time.Since(began) < 200*time.Millisecond {
		t.Errorf("an epoch that nobody knows: %+v after %v", e, time.Since(began))
	}
}
