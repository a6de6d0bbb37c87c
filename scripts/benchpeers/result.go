package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"
)

// result is what one run of one side prints, under the names that `danube bench -o json` uses.
type result struct {
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	Max      float64 `json:"max_us"`
	Errors   int64   `json:"errors"`
}

func summarise(messages, size int64, took time.Duration, times []time.Duration) result {
	r := result{Messages: messages, Bytes: messages * size, Seconds: took.Seconds(), Rate: float64(messages) / took.Seconds()}
	if len(times) == 0 {
		return r
	}
	slices.Sort(times)
	at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1e3 }
	r.P50, r.P99, r.P999, r.Max = at(.5), at(.99), at(.999), at(1)
	return r
}

// stampSize is the head of a payload of ours: sequence and due time, eight bytes each, and a CRC over the whole rest.
const stampSize = 20

// stamp fills in the head of a payload.
func stamp(b []byte, sequence int64, due time.Duration) {
	binary.LittleEndian.PutUint64(b, uint64(sequence))
	binary.LittleEndian.PutUint64(b[8:], uint64(due))
	binary.LittleEndian.PutUint32(b[16:], 0)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// unstamp reads a payload back and checks it. It writes to the payload.
func unstamp(b []byte) (sequence int64, due time.Duration, err error) {
	if len(b) < stampSize {
		return 0, 0, errors.New("a payload that is too short")
	}
	sum := binary.LittleEndian.Uint32(b[16:])
	binary.LittleEndian.PutUint32(b[16:], 0)
	if crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return 0, 0, errors.New("a payload with a wrong CRC")
	}
	return int64(binary.LittleEndian.Uint64(b)), time.Duration(binary.LittleEndian.Uint64(b[8:])), nil
}
