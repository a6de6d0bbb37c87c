package hotdir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"

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

// Run is what the present run says of itself while it runs.
type Run struct {
	Number uint64 // new for every run
	Always bool   // every ack waits for a sync
	BootID string // of the machine's run; at most 255 bytes are kept
}

// End says where a partition ended at a clean stop.
type End struct {
	Base, Epoch uint64 // of its last file
	Size        int64  // bytes of header and batches in it
	End         uint64 // offset behind them
}

// RunFile is the name of the file that holds the [Run].
func (d Dir) RunFile() string { return path.Join(d.Topics(), "run") }

// Marker is the name of the clean marker.
func (d Dir) Marker() string { return path.Join(d.Topics(), "clean") }

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

// ReadRun reads what the run before said of itself. Errors: fs.ErrNotExist when
// nothing is there; what is wrong with it; those of reading.
func (d Dir) ReadRun() (Run, error) {
	b, err := disk.ReadFile(d.FS, d.RunFile())
	if err == nil {
		b, err = unseal(b, runMagic)
	}
	if err == nil && (len(b) < 10 || len(b) < 10+int(b[9])) {
		err = errors.New("cut short")
	}
	if err != nil {
		return Run{}, err
	}
	return Run{Number: binary.LittleEndian.Uint64(b), Always: b[8] == 1, BootID: string(b[10 : 10+int(b[9])])}, nil
}

// WriteRun puts r in the place of what the run before said, durably.
func (d Dir) WriteRun(r Run) error {
	b := append([]byte(nil), runMagic...)
	b = binary.LittleEndian.AppendUint64(b, r.Number)
	always := byte(0)
	if r.Always {
		always = 1
	}
	id := r.BootID[:min(len(r.BootID), 255)]
	b = append(b, always, byte(len(id)))
	return disk.WriteFileAtomic(d.FS, d.RunFile(), seal(append(b, id...)))
}

// ReadMarker reads the clean marker of the run with this number. Errors:
// fs.ErrNotExist when there is none; what is wrong with it; those of reading.
func (d Dir) ReadMarker(number uint64) (map[ID]End, error) {
	b, err := disk.ReadFile(d.FS, d.Marker())
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
		return nil, err
	}
	ends := make(map[ID]End)
	for b = b[12:]; len(b) > 0; b = b[markerEach:] {
		id := ID{Topic: [16]byte(b), Partition: binary.LittleEndian.Uint32(b[16:])}
		ends[id] = End{
			Base: binary.LittleEndian.Uint64(b[20:]), Epoch: binary.LittleEndian.Uint64(b[28:]),
			Size: int64(binary.LittleEndian.Uint64(b[36:])), End: binary.LittleEndian.Uint64(b[44:]),
		}
	}
	return ends, nil
}

// WriteMarker leaves the clean marker of a run that stops, durably.
func (d Dir) WriteMarker(number uint64, ends map[ID]End) error {
	b := append([]byte(nil), markerMagic...)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ends)))
	for id, e := range ends {
		b = append(b, id.Topic[:]...)
		b = binary.LittleEndian.AppendUint32(b, id.Partition)
		for _, v := range [...]uint64{e.Base, e.Epoch, uint64(e.Size), e.End} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return disk.WriteFileAtomic(d.FS, d.Marker(), seal(b))
}

// DropMarker removes the clean marker, durably (R10). That none is there is no error.
func (d Dir) DropMarker() error {
	switch err := d.FS.Remove(d.Marker()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove clean marker: %w", err)
	}
	if err := d.FS.SyncDir(d.Topics()); err != nil {
		return fmt.Errorf("remove clean marker: %w", err)
	}
	return nil
}
