// Package words says in words, and in the descriptions of the protocol, what the metadata say: who is meant by a name,
// what became of a range, what of the cluster is not as it should be. What it is given is one version of the metadata;
// it knows no broker, no log and no clock.
//
// Its one type is Tally, what a walk over all partitions counts; the rest are functions.
package words

import (
	"errors"
	"fmt"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Counted says how many there are, in words that fit one or several.
func Counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// NoSuchTopic refuses a topic that does not exist, by its full name.
func NoSuchTopic(full string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeNoSuchTopic, Text: "topic " + full + " does not exist",
		Hint: "make it with: danube topic create " + full}
}

// NoSuchPartition refuses a partition that a topic does not have.
func NoSuchPartition(t *state.Topic, n int) *protocol.Error {
	return protocol.Errorf(protocol.CodeNoSuchPartition, "topic %s has %s, numbered from 0; there is no partition %d",
		t.Name, Counted(int(t.Settings.Partitions), "partition", "partitions"), n)
}

// NoSuchSubscription refuses a subscription that a topic does not have.
func NoSuchSubscription(topic, name string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeNoSuchSub, Text: fmt.Sprintf("topic %s has no subscription %q", topic, name),
		Hint: "danube subscription list " + topic + " names those there are"}
}

// NoSuchNamespace refuses a topic of a namespace that does not exist.
func NoSuchNamespace(full, namespace string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeNoSuchNamespace, Text: fmt.Sprintf("there is no namespace %q", namespace),
		Hint: "this version has the namespace default alone, and no command that makes others: name it /default" + strings.TrimPrefix(full, "/"+namespace)}
}

// ErrNotThere is for a partition that nobody serves at the moment.
var ErrNotThere = errors.New("no broker serves it at the moment")

// DeletedTopic refuses what a topic that was deleted is asked for.
func DeletedTopic(name string) *protocol.Error {
	return protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", name)
}
