package dispatch_test

import (
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
)

// A shell with a log of ten messages in batches of four.
func Example() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	s, err := dispatch.New(dispatch.Config{Policy: dispatch.Shared}, dispatch.Cursor{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for id := range dispatch.ConsumerID(2) {
		if _, err := s.Join(dispatch.Consumer{ID: id + 1}, now); err != nil {
			fmt.Println(err)
		}
		if err := s.Grant(id+1, 6); err != nil {
			fmt.Println(err)
		}
	}
	for {
		step := s.Next(now)
		if step.Reason != dispatch.Ready || step.From >= 10 {
			fmt.Println("nothing to read:", step.Reason)
			break
		}
		base := step.From / 4 * 4 // where the log's batch begins
		for _, d := range s.Offer(step, dispatch.Batch{Base: base, Count: min(4, 10-uint32(base))}, now, nil) {
			fmt.Printf("consumer %d gets %d to %d\n", d.Consumer, d.Start, d.End-1)
			ack := dispatch.Settle{Consumer: d.Consumer, Generation: d.Generation, Ranges: []dispatch.Range{d.Range}}
			if _, err := s.Ack(ack); err != nil {
				fmt.Println(err)
			}
		}
	}
	var delta dispatch.Delta
	if s.TakeDelta(&delta, 0) { // every 500 ms, together with those of other subscriptions
		fmt.Println("commit prefix", delta.Prefix)
		s.DeltaCommitted()
	}
	// Output:
	// consumer 1 gets 0 to 3
	// consumer 2 gets 4 to 7
	// consumer 1 gets 8 to 9
	// nothing to read: ready
	// commit prefix 10
}
