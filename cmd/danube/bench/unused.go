package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// InUseError refuses to write into a topic that others read.
type InUseError struct {
	Topic         string
	Subscriptions int
}

func (e *InUseError) Error() string {
	if e.Subscriptions == 1 {
		return fmt.Sprintf("topic %s is in use: it has 1 subscription", e.Topic)
	}
	return fmt.Sprintf("topic %s is in use: it has %d subscriptions", e.Topic, e.Subscriptions)
}

// unused refuses a topic with subscriptions of others, who would get what a run writes. One that does not exist is unused, and
// what a run left behind that was killed is nobody's.
func unused(ctx context.Context, c *client.Client, topic string) error {
	list, err := c.Admin().SubscriptionList(ctx, protocol.TopicArgs{Topic: topic, Partition: -1})
	if errors.Is(err, client.ErrNoSuchTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	n := 0
	for _, s := range list.Subscriptions {
		if !strings.HasPrefix(s.Name, ownPrefix) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	full, _, err := protocol.ParseTopic(topic)
	if err != nil {
		return err
	}
	return &InUseError{full, n}
}
