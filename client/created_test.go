package client

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/danubemq/danube/protocol"
)

// A topic that is to be made is deleted under the producer that opens it: the broker that was asked had not heard of it.
// The topic is looked up again, and made; who did not ask for that hears that it does not exist.
func TestTopicDeletedUnderAProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bareFake(t)
		c, err := Dial(t.Context(), []string{f.addr}, Config{Dialer: f.dialPipe})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		refused := 0
		f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
			if fr.Type != protocol.TypeOpenProducer {
				return false
			}
			if refused++; refused > 3 {
				return false
			}
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeNoSuchTopic, "topic /default/a does not exist"))
			return true
		})
		p, err := c.Producer(soon(t), "a", ProducerConfig{Create: &protocol.TopicConfig{}})
		if err != nil || refused != 4 {
			t.Fatalf("after %d attempts: %v", refused, err)
		}
		if _, err := p.Send(soon(t), text("x")); err != nil {
			t.Error(err)
		}
		refused = 0
		_, err = c.Producer(soon(t), "a", ProducerConfig{})
		if !errors.Is(err, protocol.Errorf(protocol.CodeNoSuchTopic, "")) || refused != 1 {
			t.Errorf("after %d attempts: %v", refused, err)
		}
		refused = -makeAgain
		_, err = c.Producer(soon(t), "a", ProducerConfig{Create: &protocol.TopicConfig{}})
		if !errors.Is(err, protocol.Errorf(protocol.CodeNoSuchTopic, "")) || refused != 1 {
			t.Errorf("after %d attempts: %v", refused+makeAgain, err)
		}
	})
}
