package wal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

// Two small files lie in the log's directory, little-endian, each ending with a
// CRC-32C of what stands before it:
//
//	run    "DANRUN1\n" · u64 number of the run · u8 1 when every ack waited for
//	       a sync · u8 length and bytes of the machine's boot id
//	clean  "DANCLN1\n" · u64 number of the run that stopped cleanly · u32 count ·
//	       for each partition: topic id (16) · u32 partition · u64 base and u64
//	       epoch of its last file · u64 bytes of batches in it · u64 offset behind them
//
// The run's number ties the two: a marker that was copied back from an earlier
// stop names another run and counts for nothing.
const (
	runMagic    = "DANRUN1\n"
	markerMagic = "DANCLN1\n"
	markerEach  = 16 + 4 + 8 + 8 + 8 + 8
)

// runInfo is the content of the file "run".
type runInfo struct {
	number uint64
	always bool
	bootID string
}

// markerEntry says where a partition ended at a clean stop.
type markerEntry struct {
	base, epoch uint64
	size        int64
	end         uint64
}

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, batch.Checksum(b)) }

// unseal returns what stands between the magic and the CRC.
func unseal(b []byte, magic string) ([]byte, error) {
	n := len(b) - 4
	switch {
	case n < len(magic) || string(b[:len(magic)]) != magic:
		return nil, errors.New("not what its name says")
	case binary.LittleEndian.Uint32(b[n:]) != batch.Checksum(b[:n]):
		return nil, errors.New("CRC is wrong")
	}
	return b[len(magic):n], nil
}

func (t *Tier) readRun() (runInfo, bool) {
	b, err := disk.ReadFile(t.config.FS, t.runName())
	if isNotExist(err) {
		return runInfo{}, false
	}
	if err == nil {
		b, err = unseal(b, runMagic)
	}
	if err == nil && (len(b) < 10 || len(b) < 10+int(b[9])) {
		err = errors.New("cut short")
	}
	if err != nil {
		t.config.Log.Warn("file is damaged; the end of each partition is taken for not proven", "file", t.runName(), "err", err)
		return runInfo{}, false
	}
	return runInfo{
		number: binary.LittleEndian.Uint64(b), always: b[8] == 1, bootID: string(b[10 : 10+int(b[9])]),
	}, true
}

func (t *Tier) writeRun() error {
	b := append([]byte(nil), runMagic...)
	b = binary.LittleEndian.AppendUint64(b, t.run.number)
	always := byte(0)
	if t.config.SyncInterval == 0 {
		always = 1
	}
	id := t.config.BootID[:min(len(t.config.BootID), 255)]
	b = append(b, always, byte(len(id)))
	return disk.WriteFileAtomic(t.config.FS, t.runName(), seal(append(b, id...)))
}

// readMarker reads the clean marker, if there is one of that run.
func (t *Tier) readMarker(number uint64) bool {
	b, err := disk.ReadFile(t.config.FS, t.markerName())
	if isNotExist(err) {
		return false
	}
	if err == nil {
		b, err = unseal(b, markerMagic)
	}
	if err == nil && (len(b) < 12 || len(b) != 12+markerEach*int(binary.LittleEndian.Uint32(b[8:]))) {
		err = errors.New("cut short")
	}
	if err == nil && binary.LittleEndian.Uint64(b) != number {
		err = fmt.Errorf("it is of run %d, the last was %d", binary.LittleEndian.Uint64(b), number)
	}
	if err != nil {
		t.config.Log.Warn("clean marker does not count, recovering as after a crash", "file", t.markerName(), "err", err)
		return false
	}
	for b = b[12:]; len(b) > 0; b = b[markerEach:] {
		id := ID{Topic: [16]byte(b), Partition: binary.LittleEndian.Uint32(b[16:])}
		t.run.clean[id] = markerEntry{
			base: binary.LittleEndian.Uint64(b[20:]), epoch: binary.LittleEndian.Uint64(b[28:]),
			size: int64(binary.LittleEndian.Uint64(b[36:])), end: binary.LittleEndian.Uint64(b[44:]),
		}
	}
	return true
}

func (t *Tier) writeMarker(entries map[ID]markerEntry) error {
	b := append([]byte(nil), markerMagic...)
	b = binary.LittleEndian.AppendUint64(b, t.run.number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	for id, e := range entries {
		b = append(b, id.Topic[:]...)
		b = binary.LittleEndian.AppendUint32(b, id.Partition)
		for _, v := range [...]uint64{e.base, e.epoch, uint64(e.size), e.end} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return disk.WriteFileAtomic(t.config.FS, t.markerName(), seal(b))
}
