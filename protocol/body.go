package protocol

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/danubemq/danube/protocol/msgpackwalk"
)

// MaxAdminBody bounds the argument and the result of an admin operation, in bytes.
const MaxAdminBody = 8 << 20

// EncodeBody encodes the argument or result of an admin operation.
func EncodeBody(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

// DecodeBody decodes b into v, a pointer to a zero value of the type the
// operation documents. Unknown fields are ignored; an empty b leaves v as it
// is. Its error is an [*Error] with CodeBadRequest.
func DecodeBody(b []byte, v any) error {
	if len(b) == 0 {
		return nil
	}
	if len(b) > MaxAdminBody {
		return Errorf(CodeTooLarge, "body of %d bytes, at most %d", len(b), MaxAdminBody)
	}
	if err := msgpackwalk.Check(b); err != nil {
		return Errorf(CodeBadRequest, "malformed body: %s", err.Error())
	}
	// The library makes a list of structures as long as the list says, and a
	// structure takes up to hundreds of bytes: no honest element is this short.
	c := codec{b: b}
	if n := c.skip(); n > uint64(64+len(b)/8) {
		return Errorf(CodeBadRequest, "malformed body: %d list elements in %d bytes", n, len(b))
	}
	if err := msgpack.Unmarshal(b, v); err != nil {
		return Errorf(CodeBadRequest, "malformed body: %s", err.Error())
	}
	return nil
}
