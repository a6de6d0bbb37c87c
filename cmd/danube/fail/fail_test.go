package fail

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/danubemq/danube/protocol"
)

// TestReportForm: what failed, why, the request and the hint, each on its line.
func TestReportForm(t *testing.T) {
	broker := &protocol.Error{Code: protocol.CodeLevelUnavailable, Text: "no write buffer", Hint: "set storage.write_buffer", Request: "n1-7"}
	for name, c := range map[string]struct {
		err  error
		code int
		want string
	}{
		"nothing":         {nil, Done, ""},
		"plain":           {errors.New("why"), Failed, "danube: why\n"},
		"hint":            {WithHint(errors.New("why"), "do %s", "that"), Failed, "danube: why\n  hint: do that\n"},
		"usage with hint": {WithHint(Usagef("why"), "do that"), Usage, "danube: why\n  hint: do that\n"},
		"of the broker":   {errors.Join(broker), Failed, "danube: no write buffer\n  request n1-7 (the broker's log has it too)\n  hint: set storage.write_buffer\n"},
		"time ran out": {fmt.Errorf("create: %w", errors.Join(protocol.Errorf(protocol.CodeTimeout, "timed out"), fmt.Errorf("last: %w", broker))), Failed,
			"danube: create: timed out\n  last: no write buffer\n  hint: set storage.write_buffer\n"},
		"several":          {errors.Join(errors.New("a"), errors.New("b")), Failed, "danube: a\ndanube: b\n"},
		"one, of several":  {fmt.Errorf("count: %w", errors.Join(errors.New("a"), errors.New("b"))), Failed, "danube: count: a\n  b\n"},
		"two in usage":     {With(Usage, errors.Join(errors.New("a"), errors.New("b"))), Usage, "danube: a\ndanube: b\n"},
		"already said why": {Quietly(errors.New("x"), Usage), Usage, ""},
	} {
		var b bytes.Buffer
		if code := Report(&b, c.err); code != c.code || b.String() != c.want {
			t.Errorf("%s: %d and %q, want %d and %q", name, code, b.String(), c.code, c.want)
		}
	}
}
