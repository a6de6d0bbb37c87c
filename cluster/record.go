package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
)

const (
	recordDir  = "cluster"
	recordFile = "record"
	recordHead = "danube cluster 1\n"
	maxRecord  = 1 << 20
)

// loadRecord reads what this data directory knows of its cluster; nothing is an empty record.
func loadRecord(dir string) (founding.Record, error) {
	path := filepath.Join(dir, recordDir, recordFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return founding.Record{}, nil
	}
	if err != nil {
		return founding.Record{}, err
	}
	r, err := decodeRecord(b)
	if err != nil {
		// To go on without it could found a second cluster (R9).
		return founding.Record{}, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

func encodeRecord(r founding.Record) ([]byte, error) {
	body, err := peer.Encode(r)
	if err != nil {
		return nil, err
	}
	b := append([]byte(recordHead), body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))), nil
}

func decodeRecord(b []byte) (founding.Record, error) {
	var r founding.Record
	rest, ok := bytes.CutPrefix(b, []byte(recordHead))
	if !ok || len(rest) < 4 || len(rest) > maxRecord {
		return r, errors.New("not a cluster record of this version")
	}
	whole, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return r, errors.New("the cluster record is damaged: its checksum does not match")
	}
	return r, peer.Decode(rest[:len(rest)-4], &r)
}

// saveRecord has the record and its name on disk when it returns.
func saveRecord(dir string, r founding.Record) error {
	b, err := encodeRecord(r)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, recordDir)
	// The data directory itself is not made again: whoever deletes it under a broker wants it gone.
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the cluster's folder: %w", err)
	}
	tmp := filepath.Join(folder, recordFile+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write cluster record: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write cluster record: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(folder, recordFile)); err != nil {
		return fmt.Errorf("write cluster record: %w", err)
	}
	// The folder may be new, so its own name must be durable too.
	return errors.Join(syncDir(folder), syncDir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
