package codes

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// TestOf: what is wrapped is found, what a client needs to go on comes along, and
// what wraps several is what the first row says.
func TestOf(t *testing.T) {
	tests := map[string]struct {
		err  error
		want protocol.Error
	}{
		"coded":          {protocol.Errorf(protocol.CodeMoving, "x"), protocol.Error{Code: protocol.CodeMoving}},
		"sequence":       {&storage.SequenceError{Expected: 7}, protocol.Error{Code: protocol.CodeBadSequence, Want: 7}},
		"trimmed":        {&storage.Trimmed{LogStart: 9}, protocol.Error{Code: protocol.CodeBelowLogStart, Want: 9}},
		"elsewhere":      {&storage.Elsewhere{}, protocol.Error{Code: protocol.CodePending}},
		"damage":         {&storage.Damage{Err: errors.New("bad CRC")}, protocol.Error{Code: protocol.CodeDamaged}},
		"full":           {storage.ErrFull, protocol.Error{Code: protocol.CodeStorageFull}},
		"poisoned":       {errors.Join(storage.ErrPoisoned, context.Canceled), protocol.Error{Code: protocol.CodeStorageFailed}},
		"no such topic":  {state.ErrNotFound, protocol.Error{Code: protocol.CodeNoSuchTopic}},
		"nobody leads":   {meta.ErrNotLeader, protocol.Error{Code: protocol.CodeNoLeader, Hint: leaderHint}},
		"unknown":        {meta.ErrUnknown, protocol.Error{Code: protocol.CodeTimeout, Hint: leaderHint}},
		"busy consumer":  {&dispatch.OccupiedError{}, protocol.Error{Code: protocol.CodeConsumerBusy, Hint: busyHint}},
		"old generation": {dispatch.ErrStale, protocol.Error{Code: protocol.CodeStaleGeneration}},
		"stale":          {history.ErrStale, protocol.Error{Code: protocol.CodePending}},
		"away":           {errors.Join(protocol.Errorf(protocol.CodeNotReady, "x"), &history.AwayError{}), protocol.Error{Code: protocol.CodePending}},
		"deadline":       {context.DeadlineExceeded, protocol.Error{Code: protocol.CodeTimeout}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Of(fmt.Errorf("do it: %w", test.err))
			if got == nil {
				t.Fatal("it has no code")
			}
			if got.Code != test.want.Code || got.Want != test.want.Want || got.Hint != test.want.Hint || got.Text == "" {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
	if got := Of(errors.New("never seen")); got != nil {
		t.Errorf("an error that the table does not have is %+v", got)
	}
}
