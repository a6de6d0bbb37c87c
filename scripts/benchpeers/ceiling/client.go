package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// load is what a client run is asked for.
type load struct {
	address             string
	size, window, conns int
	count               int64
	rate                int
	duration            time.Duration
}

// result is printed as JSON, under the names that `danube bench` uses.
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

// fill completes a frame: the moment it is due, then zeros, and the CRC over both.
func fill(frame []byte, due time.Duration, table *crc32.Table) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headSize))
	binary.LittleEndian.PutUint64(frame[headSize:], uint64(due))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[headSize:], table))
}

// publishAll sends count messages over all connections, at most window in flight on each, as fast as it goes.
func publishAll(l load) (result, error) {
	var wg sync.WaitGroup
	errs := make([]error, l.conns)
	times := make([][]time.Duration, l.conns)
	start := time.Now()
	each := l.count / int64(l.conns)
	for i := range l.conns {
		wg.Go(func() { times[i], errs[i] = publishOne(l, each, start) })
	}
	wg.Wait()
	return summarise(each*int64(l.conns), int64(l.size), time.Since(start), slices.Concat(times...)), errors.Join(errs...)
}

// publishOne is one connection of publishAll. One message at a time is timed until its acknowledgement.
func publishOne(l load, count int64, start time.Time) ([]time.Duration, error) {
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	var acked atomic.Int64
	wake, lost := make(chan struct{}, 1), make(chan error, 1)
	go func() { // returns when the connection is closed
		var b [8]byte
		for {
			if _, err := io.ReadFull(c, b[:]); err != nil {
				lost <- err
				return
			}
			acked.Store(int64(binary.LittleEndian.Uint64(b[:])))
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}()
	w := bufio.NewWriterSize(c, 128<<10)
	if err := w.WriteByte(publishes); err != nil {
		return nil, err
	}
	await := func(upTo int64) error {
		if acked.Load() >= upTo {
			return nil
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for acked.Load() < upTo {
			select {
			case <-wake:
			case err := <-lost:
				return err
			}
		}
		return nil
	}
	table, frame := castagnoli(), make([]byte, headSize+l.size)
	var times []time.Duration
	var timed int64
	var since time.Duration
	for sent := int64(1); sent <= count; sent++ {
		if err := await(sent - int64(l.window)); err != nil {
			return nil, fmt.Errorf("await acks: %w", err)
		}
		if timed > 0 && acked.Load() >= timed {
			times, timed = append(times, time.Since(start)-since), 0
		}
		fill(frame, 0, table)
		if _, err := w.Write(frame); err != nil {
			return nil, fmt.Errorf("send: %w", err)
		}
		if timed == 0 {
			timed, since = sent, time.Since(start)
		}
	}
	return times, await(count)
}

// measureDelivery publishes at a steady rate and times each message from the moment it was due until a follower has it.
func measureDelivery(l load) (result, error) {
	follower, err := net.Dial("tcp", l.address)
	if err != nil {
		return result{}, fmt.Errorf("dial: %w", err)
	}
	defer follower.Close()
	fmt.Fprintf(follower, "%c", follows)
	r := bufio.NewReaderSize(follower, 512<<10)
	if _, err := r.ReadByte(); err != nil {
		return result{}, fmt.Errorf("follow: %w", err)
	}
	c, err := net.Dial("tcp", l.address)
	if err != nil {
		return result{}, fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	go func() { // returns when the connection is closed: acknowledgements are not timed here
		_, _ = io.Copy(io.Discard, c)
	}()
	fmt.Fprintf(c, "%c", publishes)

	count := int64(float64(l.rate) * l.duration.Seconds())
	start, sent := time.Now(), make(chan error, 1)
	go func() { // returns when all are sent
		sent <- pace(count, l.rate, func(due time.Duration, frame []byte) error {
			fill(frame, due, castagnoli())
			_, err := c.Write(frame)
			return err
		}, headSize+l.size, start)
	}()
	times := make([]time.Duration, 0, count)
	frame := make([]byte, headSize+l.size)
	for range count {
		if _, err := io.ReadFull(r, frame); err != nil {
			return result{}, errors.Join(fmt.Errorf("receive: %w", err), <-sent)
		}
		if crc32.Checksum(frame[headSize:], castagnoli()) != binary.LittleEndian.Uint32(frame[4:]) {
			return result{}, errors.New("a message came with a wrong CRC")
		}
		times = append(times, time.Since(start)-time.Duration(binary.LittleEndian.Uint64(frame[headSize:])))
	}
	took := time.Since(start)
	// The first tenth warms up.
	return summarise(count, int64(l.size), took, times[len(times)/10:]), <-sent
}

// pace calls send at each message's due time. It sleeps in the kernel with a small slack: the runtime's own timers are
// too coarse for a thousand a second.
func pace(count int64, rate int, send func(due time.Duration, frame []byte) error, size int, start time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fineTimers()
	frame := make([]byte, size)
	begin := time.Since(start) + 10*time.Millisecond
	for i := range count {
		due := begin + time.Duration(i)*time.Second/time.Duration(rate)
		if wait := due - time.Since(start); wait > 0 {
			ts := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&ts, nil) // an interrupted sleep sends early by what was left of it
		}
		if err := send(due, frame); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}
