package broker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// Without a majority nothing can be decided, and whoever asks is told so, with a
// code that says ask again and where to look, though it named no deadline.
func TestRequestWithoutAMajorityIsAnswered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "there", 0, 1)
	if _, err := f.dial(0).Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "wide", Config: protocol.TopicConfig{Partitions: 3}}); err != nil {
		t.Fatal(err)
	}
	f.kill(1)
	f.kill(2)
	ctx, cancel := context.WithCancel(t.Context()) // no deadline, as of a client that names none
	defer cancel()
	var asked sync.WaitGroup
	for op, arg := range map[string]any{
		protocol.OpTopicCreate:  protocol.TopicCreate{Topic: "new"},
		protocol.OpTopicDelete:  protocol.TopicArgs{Topic: "there", Force: true},
		protocol.OpTopicSet:     protocol.TopicSet{Topic: "there", RetentionMS: new(int64)},
		protocol.OpSubDelete:    protocol.SubArgs{Topic: "there", Subscription: "none", Force: true},
		protocol.OpBrokerRemove: protocol.BrokerArgs{Broker: "n2", Lose: true},
	} {
		asked.Go(func() {
			err := f.nodes[0].Ask(ctx, op, arg)
			switch {
			case op == protocol.OpSubDelete: // asks for no decision
				if err == nil || err.Code != protocol.CodeNoSuchSub {
					t.Errorf("%s: %v", op, err)
				}
			case ctx.Err() != nil:
				t.Errorf("%s waits for ever", op)
			case err == nil || !err.Code.Meaning().Retriable || err.Hint == "":
				t.Errorf("%s: %+v", op, err)
			}
		})
	}
	late := time.AfterFunc(15*time.Second, cancel)
	asked.Wait()
	late.Stop()
	for op, arg := range map[string]any{
		protocol.OpTopicCreate: protocol.TopicCreate{Topic: "new"},
		protocol.OpSubCreate:   protocol.SubCreate{Topic: "wide", Subscription: "s"}, // two of its owners are away, and nobody replaces them
	} {
		eventually(t, op+": a stranger reads what is the matter and what to do", func() bool {
			err := f.nodes[0].Ask(t.Context(), op, arg)
			return err != nil && err.Code == protocol.CodeNoLeader && strings.Contains(err.Text, "has no leader that broker n1 knows of") &&
				strings.HasSuffix(err.Text, "1 of 3 voters is seen, 2 are needed") && strings.Contains(err.Hint, "docs/runbook.md")
		})
	}
}
