package broker_test

import (
	"fmt"
	"testing"

	"github.com/danubemq/danube/protocol"
)

// To move a topic where it is is a success without a move, and the answer names
// no partition that moved.
func TestMoveToWhereItIsIsNoMove(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	publish(t, f.dial(0), "here", 0, 10)
	owner := f.owner("here", 0)
	for _, partition := range []int{-1, 0} {
		out, err := f.dial(1-owner).Admin().TopicMove(t.Context(), protocol.TopicMove{Topic: "here", Partition: partition, To: fmt.Sprintf("n%d", owner+1)})
		if err != nil || len(out.Partitions) != 0 {
			t.Errorf("move to its owner: %+v, %v", out, err)
		}
	}
	if m := f.nodes[owner].Partition("here", 0); m.Epoch != 1 || m.Move != 0 {
		t.Errorf("after that: %+v", m)
	}
	if _, err := f.dial(0).Admin().TopicMove(t.Context(), protocol.TopicMove{Topic: "here", Partition: 7, To: "n1"}); err == nil {
		t.Error("a partition that is not there was moved")
	}
}
