package meta

import (
	"errors"
	"reflect"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// TestResultCrossesWhole: every field of a result arrives, those of a later release of this code too.
func TestResultCrossesWhole(t *testing.T) {
	var r state.Result
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.Interface, f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Interface:
		case f.Kind() == reflect.Uint64:
			f.SetUint(uint64(i) + 1<<40)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Array:
			f.Index(0).SetUint(uint64(i) + 1)
		default:
			t.Fatalf("field %s of a kind that this test does not fill", v.Type().Field(i).Name)
		}
	}
	r.Entries = []error{nil, &state.Error{Code: state.ErrStaleEpoch.Code, Text: "epoch 3 is over"}, nil}
	b, err := encodeReply(r, 77, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := decodeReply(b)
	if err != nil || a.Index != 77 || !reflect.DeepEqual(a.Result, r) {
		t.Fatalf("%+v became %+v at %d: %v", r, a.Result, a.Index, err)
	}
	if a.Result.Entry(0) != nil || !errors.Is(a.Result.Entry(1), state.ErrStaleEpoch) {
		t.Fatalf("entries %v", a.Result.Entries)
	}
}

func TestErrorsKeepTheirIdentityOnTheWay(t *testing.T) {
	for name, c := range map[string]struct{ in, want error }{
		"refusal":         {&state.Error{Code: state.ErrConflict.Code, Text: "topic x is there"}, state.ErrConflict},
		"not the leader":  {ErrNotLeader, ErrNotLeader},
		"closed":          {ErrClosed, ErrNotLeader},
		"busy":            {ErrBusy, ErrBusy},
		"unknown":         {errors.Join(ErrUnknown, ErrClosed), ErrUnknown},
		"newer command":   {state.ErrNewerCommand, state.ErrNewerCommand},
		"damaged command": {state.ErrDamaged, state.ErrDamaged},
		"any other":       {errors.New("x"), ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := encodeReply(state.Result{Err: c.in}, 0, c.in)
			if err != nil {
				t.Fatal(err)
			}
			a, err := decodeReply(b)
			if err == nil {
				err = a.Result.Err
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("%v became %v", c.in, err)
			}
			if refusal, ok := errors.AsType[*state.Error](c.in); ok && err.Error() != refusal.Text {
				t.Fatalf("the text became %q", err)
			}
		})
	}
}

// TestUnreadableRequestsAreRefused: a peer's bad input is an error.
func TestUnreadableRequestsAreRefused(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	for name, c := range map[string]struct {
		op   byte
		body []byte
	}{
		"no command":         {opPropose, nil},
		"a damaged command":  {opPropose, []byte("abcdefghi")},
		"no index":           {opReach, []byte{1}},
		"another operation":  {99, nil},
		"a zeroth operation": {0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := n.Serve(t.Context(), c.op, c.body); err == nil {
				t.Fatalf("answered %q", b)
			}
		})
	}
}

func FuzzDecodeReply(f *testing.F) {
	for _, err := range []error{nil, ErrNotLeader, state.ErrConflict} {
		b, _ := encodeReply(state.Result{Index: 9, Entries: []error{nil, state.ErrExists}}, 9, err)
		f.Add(b)
	}
	f.Add([]byte("\x00\x84\xa1r\x87\xa3Err0000000000000000000")) // a number where this end has an interface
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeReply(b); err == nil && len(a.Result.Entries) > len(b) {
			t.Fatalf("%d entries out of %d bytes", len(a.Result.Entries), len(b))
		}
	})
}
