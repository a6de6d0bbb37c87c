package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/danubemq/danube/protocol/msgpackwalk"
)

// An encoded command is: version u8 · kind u8 · CRC-32C of version, kind and body, u32 little-endian · body, a msgpack
// map with short keys. The Raft database has no checksum of its own over log entries. A field that older releases may
// ignore can be added freely; one that changes what a command does needs the next version, so that older releases stop
// instead of diverging.
const (
	commandVersion = 1
	commandHeader  = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kinds returns the type of every command at its number. It is append-only: a number is never used for anything else.
func kinds() []reflect.Type {
	return []reflect.Type{
		1:  reflect.TypeFor[InitCluster](),
		2:  reflect.TypeFor[RegisterStore](),
		3:  reflect.TypeFor[SetStore](),
		4:  reflect.TypeFor[CreateNamespace](),
		5:  reflect.TypeFor[SetNamespace](),
		6:  reflect.TypeFor[DeleteNamespace](),
		7:  reflect.TypeFor[CreateTopic](),
		8:  reflect.TypeFor[SetTopic](),
		9:  reflect.TypeFor[DeleteTopic](),
		10: reflect.TypeFor[PurgeTopic](),
		11: reflect.TypeFor[OpenPartitions](),
		12: reflect.TypeFor[UpdatePartitions](),
		13: reflect.TypeFor[MarkRanges](),
		14: reflect.TypeFor[CreateSubscription](),
		15: reflect.TypeFor[SetSubscription](),
		16: reflect.TypeFor[DeleteSubscription](),
		17: reflect.TypeFor[ResetSubscription](),
		18: reflect.TypeFor[MoveCursors](),
		19: reflect.TypeFor[LoseStore](),
		20: reflect.TypeFor[RemoveStore](),
		21: reflect.TypeFor[GrantPartitions](),
		22: reflect.TypeFor[MovePartitions](),
		23: reflect.TypeFor[AbortMoves](),
		24: reflect.TypeFor[HandOver](),
		25: reflect.TypeFor[CopyRanges](),
		26: reflect.TypeFor[RestoreRange](),
		27: reflect.TypeFor[NewHistory](),
		28: reflect.TypeFor[Tick](),
		29: reflect.TypeFor[CommitSegments](),
		30: reflect.TypeFor[GrantExports](),
		31: reflect.TypeFor[SwapSegments](),
		32: reflect.TypeFor[PageCatalog](),
		33: reflect.TypeFor[UnpageCatalog](),
		34: reflect.TypeFor[CondemnTopic](),
		35: reflect.TypeFor[CondemnPage](),
		36: reflect.TypeFor[CondemnObjects](),
		37: reflect.TypeFor[ForgetObjects](),
		38: reflect.TypeFor[EndAudit](),
	}
}

// newCommand returns an empty command of a kind, nil if this release knows none.
func newCommand(kind uint8) Command {
	known := kinds()
	if kind == 0 || int(kind) >= len(known) {
		return nil
	}
	return reflect.New(known[kind]).Interface().(Command)
}

func kindOf(c Command) uint8 { return uint8(slices.Index(kinds(), reflect.TypeOf(c).Elem())) }

// Encode returns the bytes of a command, or ErrTooLarge.
func Encode(c Command) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, commandHeader, 128))
	if err := encodeRecord(buf, c); err != nil {
		return nil, fmt.Errorf("encode %T: %w", c, err)
	}
	b := buf.Bytes()
	if len(b) > MaxCommand {
		return nil, fmt.Errorf("%w: %T of %d bytes", ErrTooLarge, c, len(b))
	}
	b[0], b[1] = commandVersion, kindOf(c)
	binary.LittleEndian.PutUint32(b[2:], commandCRC(b))
	return b, nil
}

func commandCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:2], castagnoli), castagnoli, b[commandHeader:])
}

// Verify checks an encoded command without decoding it: ErrNewerCommand if a later release wrote it, ErrDamaged if it
// is not what anybody wrote.
func Verify(b []byte) error {
	if len(b) < commandHeader || len(b) > MaxCommand {
		return fmt.Errorf("%w: command of %d bytes", ErrDamaged, len(b))
	}
	if b[0] == 0 || binary.LittleEndian.Uint32(b[2:]) != commandCRC(b) {
		return fmt.Errorf("%w: command fails its checksum", ErrDamaged)
	}
	if b[0] > commandVersion {
		return fmt.Errorf("%w (version %d, this release knows %d)", ErrNewerCommand, b[0], commandVersion)
	}
	if newCommand(b[1]) == nil {
		return fmt.Errorf("%w (kind %d)", ErrNewerCommand, b[1])
	}
	return nil
}

// Decode reads what Encode wrote, with the errors of Verify. It is safe on any bytes and keeps none of them.
func Decode(b []byte) (Command, error) {
	if err := Verify(b); err != nil {
		return nil, err
	}
	c := newCommand(b[1])
	if err := decodeRecord(b[commandHeader:], c); err != nil {
		return nil, fmt.Errorf("%w: decode %T: %w", ErrDamaged, c, err)
	}
	return c, nil
}

// encodeRecord appends the msgpack map of a record. The same record always gives the same bytes.
func encodeRecord(buf *bytes.Buffer, record any) error {
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(buf)
	e.UseCompactInts(true)
	return e.Encode(record)
}

func decodeRecord(b []byte, record any) error {
	if err := msgpackwalk.Check(b); err != nil {
		return err
	}
	return msgpack.Unmarshal(b, record)
}
