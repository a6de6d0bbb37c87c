package protocol

import (
	"encoding/binary"
	"fmt"
)

// FrameHead is the length in bytes of what stands before a frame's header:
//
//	 0  u32  length of what follows: 16, the header and the body
//	 4  u8   type
//	 5  u8   flags, 0: none is defined, and a reader ignores them
//	 6  u16  header version, HeaderVersion
//	 8  u64  correlation id
//	16  u32  header length
//
// all little-endian. Behind it come the header, a msgpack map, and the raw body.
const FrameHead = 20

// HeaderVersion is the version of every header this package writes. A header
// gains fields without a new version; a reader refuses any other version.
const HeaderVersion = 1

// MaxHeader bounds the header of one frame, in bytes.
const MaxHeader = 1 << 20

// Frame is one frame as a [Reader] hands it out.
type Frame struct {
	Type  Type
	Flags uint8
	ID    uint64 // correlation id: an answer carries that of its request
	// Header and Body lie in the reader's buffer: they are valid until its next Next.
	Header, Body []byte
}

// FrameError says that what a peer sent is no frame this side accepts. What
// follows on the connection cannot be read: answer with Code and close it.
type FrameError struct {
	Code Code
	Text string
	ID   uint64 // correlation id when it could be read, else 0
}

func (e *FrameError) Error() string { return e.Text }

// Wire is the error as it goes to the peer in a frame of [TypeError].
func (e *FrameError) Wire() *Error { return &Error{Code: e.Code, Text: e.Text} }

// Header is what every header type of this package can do.
type Header interface {
	AppendTo(dst []byte) []byte
}

// AppendHead appends a frame up to its body, of which bodyLen bytes follow; the
// caller writes dst and the body with one writev. A nil header is an empty one.
func AppendHead(dst []byte, t Type, id uint64, header Header, bodyLen int) []byte {
	at := len(dst)
	dst = BeginFrame(dst, t, id)
	if header != nil {
		dst = header.AppendTo(dst)
	}
	EndHead(dst[at:], bodyLen)
	return dst
}

// AppendFrame appends a whole frame. A nil header is an empty one.
func AppendFrame(dst []byte, t Type, id uint64, header Header, body []byte) []byte {
	return append(AppendHead(dst, t, id, header, len(body)), body...)
}

// BeginFrame appends the fixed part of a frame without its lengths. With
// [EndHead] it does what [AppendHead] does where the header must not move to
// the heap, as it does in a call through an interface:
//
//	dst = protocol.BeginFrame(dst, protocol.TypeProduceOK, id)
//	dst = ok.AppendTo(dst)
//	protocol.EndHead(dst[at:], 0) // at: where the frame begins
func BeginFrame(dst []byte, t Type, id uint64) []byte {
	dst = append(dst, 0, 0, 0, 0, byte(t), 0, HeaderVersion, 0)
	dst = binary.LittleEndian.AppendUint64(dst, id)
	return append(dst, 0, 0, 0, 0)
}

// EndHead fills in the lengths of the frame that begins at frame[0] and so far
// ends with its header; bodyLen bytes of body follow.
func EndHead(frame []byte, bodyLen int) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-4+bodyLen))
	binary.LittleEndian.PutUint32(frame[16:], uint32(len(frame)-FrameHead))
}

// parseFrame reads the frame that b holds from its first byte to its last.
func parseFrame(b []byte) (Frame, error) {
	f := Frame{Type: Type(b[4]), Flags: b[5], ID: binary.LittleEndian.Uint64(b[8:])}
	if v := binary.LittleEndian.Uint16(b[6:]); v != HeaderVersion {
		return Frame{}, f.refuse(CodeUnsupported, "header version %d of a frame, this side reads %d", v, HeaderVersion)
	}
	n, rest := binary.LittleEndian.Uint32(b[16:]), b[FrameHead:]
	switch {
	case uint64(n) > uint64(len(rest)):
		return Frame{}, f.refuse(CodeBadFrame, "header of %d bytes in a frame that has %d left", n, len(rest))
	case n > MaxHeader:
		return Frame{}, f.refuse(CodeTooLarge, "header of %d bytes, at most %d", n, MaxHeader)
	}
	f.Header, f.Body = rest[:n:n], rest[n:len(rest):len(rest)]
	return f, nil
}

func (f *Frame) refuse(c Code, format string, args ...any) error {
	return &FrameError{Code: c, Text: fmt.Sprintf(format, args...), ID: f.ID}
}
