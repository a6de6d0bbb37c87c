package broker

import (
	"errors"
	"testing"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/protocol"
)

// A partition whose opening was refused at the start, because the cluster gave
// it away meanwhile, can be opened later: when it comes back, or is moved here.
func TestRefusedAtTheStartCanBeOpenedLater(t *testing.T) {
	t.Parallel()
	b, m := subscribed(t, 1)
	view := b.meta.View()
	p := b.served(served.Key{Topic: m.Topic, N: 0})
	b.retire(p, protocol.Errorf(protocol.CodeMoved, "for the test"))
	r, err := b.recover(t.Context(), view.TopicByID(m.Topic), view.Partition(m.Topic, 0))
	if err != nil {
		t.Fatal(err)
	}
	b.beginAll(view, []recovered{r}, []error{errors.New("granted to another")})
	if b.served(p.Key) != nil {
		t.Fatal("it is served")
	}
	again, err := b.recover(t.Context(), view.TopicByID(m.Topic), view.Partition(m.Topic, 0))
	if err != nil {
		t.Fatalf("its log stayed open: %v", err)
	}
	if err := again.log.Close(); err != nil {
		t.Fatal(err)
	}
}
