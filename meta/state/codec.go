package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

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

// The kinds of commands, append-only. A number is never used for anything else.
const (
	kindInitCluster uint8 = iota + 1
	kindRegisterStore
	kindSetStore
	kindCreateNamespace
	kindSetNamespace
	kindDeleteNamespace
	kindCreateTopic
	kindSetTopic
	kindDeleteTopic
	kindPurgeTopic
	kindOpenPartitions
	kindUpdatePartitions
	kindMarkRanges
	kindCreateSubscription
	kindSetSubscription
	kindDeleteSubscription
	kindResetSubscription
	kindMoveCursors
	kindLoseStore
	kindRemoveStore
	kindGrantPartitions
	kindMovePartitions
	kindAbortMoves
	kindHandOver
	kindCopyRanges
	kindRestoreRange
	kindNewHistory
	kindTick
)

// newCommand returns an empty command of a kind, nil if this release knows none.
func newCommand(kind uint8) Command {
	switch kind {
	case kindInitCluster:
		return new(InitCluster)
	case kindRegisterStore:
		return new(RegisterStore)
	case kindSetStore:
		return new(SetStore)
	case kindCreateNamespace:
		return new(CreateNamespace)
	case kindSetNamespace:
		return new(SetNamespace)
	case kindDeleteNamespace:
		return new(DeleteNamespace)
	case kindCreateTopic:
		return new(CreateTopic)
	case kindSetTopic:
		return new(SetTopic)
	case kindDeleteTopic:
		return new(DeleteTopic)
	case kindPurgeTopic:
		return new(PurgeTopic)
	case kindOpenPartitions:
		return new(OpenPartitions)
	case kindUpdatePartitions:
		return new(UpdatePartitions)
	case kindMarkRanges:
		return new(MarkRanges)
	case kindCreateSubscription:
		return new(CreateSubscription)
	case kindSetSubscription:
		return new(SetSubscription)
	case kindDeleteSubscription:
		return new(DeleteSubscription)
	case kindResetSubscription:
		return new(ResetSubscription)
	case kindMoveCursors:
		return new(MoveCursors)
	case kindLoseStore:
		return new(LoseStore)
	case kindRemoveStore:
		return new(RemoveStore)
	case kindGrantPartitions:
		return new(GrantPartitions)
	case kindMovePartitions:
		return new(MovePartitions)
	case kindAbortMoves:
		return new(AbortMoves)
	case kindHandOver:
		return new(HandOver)
	case kindCopyRanges:
		return new(CopyRanges)
	case kindRestoreRange:
		return new(RestoreRange)
	case kindNewHistory:
		return new(NewHistory)
	case kindTick:
		return new(Tick)
	}
	return nil
}

func (*InitCluster) kind() uint8        { return kindInitCluster }
func (*RegisterStore) kind() uint8      { return kindRegisterStore }
func (*SetStore) kind() uint8           { return kindSetStore }
func (*CreateNamespace) kind() uint8    { return kindCreateNamespace }
func (*SetNamespace) kind() uint8       { return kindSetNamespace }
func (*DeleteNamespace) kind() uint8    { return kindDeleteNamespace }
func (*CreateTopic) kind() uint8        { return kindCreateTopic }
func (*SetTopic) kind() uint8           { return kindSetTopic }
func (*DeleteTopic) kind() uint8        { return kindDeleteTopic }
func (*PurgeTopic) kind() uint8         { return kindPurgeTopic }
func (*OpenPartitions) kind() uint8     { return kindOpenPartitions }
func (*UpdatePartitions) kind() uint8   { return kindUpdatePartitions }
func (*MarkRanges) kind() uint8         { return kindMarkRanges }
func (*CreateSubscription) kind() uint8 { return kindCreateSubscription }
func (*SetSubscription) kind() uint8    { return kindSetSubscription }
func (*DeleteSubscription) kind() uint8 { return kindDeleteSubscription }
func (*ResetSubscription) kind() uint8  { return kindResetSubscription }
func (*MoveCursors) kind() uint8        { return kindMoveCursors }
func (*LoseStore) kind() uint8          { return kindLoseStore }
func (*RemoveStore) kind() uint8        { return kindRemoveStore }
func (*GrantPartitions) kind() uint8    { return kindGrantPartitions }
func (*MovePartitions) kind() uint8     { return kindMovePartitions }
func (*AbortMoves) kind() uint8         { return kindAbortMoves }
func (*HandOver) kind() uint8           { return kindHandOver }
func (*CopyRanges) kind() uint8         { return kindCopyRanges }
func (*RestoreRange) kind() uint8       { return kindRestoreRange }
func (*NewHistory) kind() uint8         { return kindNewHistory }
func (*Tick) kind() uint8               { return kindTick }

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
	b[0], b[1] = commandVersion, c.kind()
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
