package recording

import (
	"encoding/binary"
	"errors"
	"io"
)

// lookAhead bounds the entries kept for calls that Join has not reached.
const lookAhead = 1 << 20

// deviceTimes are when a device executed a command, in ns of the driver's clock.
type deviceTimes struct{ queued, start, end int64 }

// deviceReader finds the device's times of calls in the threads' streams, where they follow the
// calls, possibly in the streams of other threads.
type deviceReader struct {
	cursors []*cursor
	found   map[uint64]deviceTimes
	turn    int
}

func newDeviceReader(p *process) *deviceReader {
	r := &deviceReader{found: make(map[uint64]deviceTimes)}
	for _, s := range p.threads {
		r.cursors = append(r.cursors, s.cursor())
	}
	return r
}

// find returns the device's times of the call with that number. It reads ahead chunk by chunk in
// all streams.
func (r *deviceReader) find(number uint64) (deviceTimes, bool, error) {
	for {
		if t, ok := r.found[number]; ok {
			delete(r.found, number)
			return t, true, nil
		}
		if len(r.cursors) == 0 || len(r.found) >= lookAhead {
			return deviceTimes{}, false, nil
		}
		if err := r.readChunk(); err != nil {
			return deviceTimes{}, false, err
		}
	}
}

// readChunk reads the rest of a chunk of the next stream in turn.
func (r *deviceReader) readChunk() error {
	r.turn = (r.turn + 1) % len(r.cursors)
	c := r.cursors[r.turn]
	for {
		raw, err := c.read()
		if errors.Is(err, io.EOF) {
			r.cursors = append(r.cursors[:r.turn], r.cursors[r.turn+1:]...)
			return nil
		}
		if err != nil {
			return err
		}
		if raw.kind == deviceRecord && len(raw.body) == deviceSize-8 {
			word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(raw.body[8*i:])) }
			r.found[uint64(word(0))] = deviceTimes{queued: word(1), start: word(2), end: word(3)}
		}
		if len(c.rest) == 0 {
			return nil
		}
	}
}

// driverClock aligns a driver's clock: a command is queued within the call that enqueues it, and a
// command that a call waits for ends before the call does. The offset lies between the bounds
// derived from the commands so far; clocks drift, so a command that contradicts them resets them.
type driverClock struct {
	low, high int64
	known     bool
}

// observe narrows the bounds by a command whose call lasted from begin to end.
func (k *driverClock) observe(t deviceTimes, begin, end int64, waited bool) {
	low, high := begin-t.queued, end-t.queued
	if waited {
		high = min(high, end-t.end)
	}
	if low > high {
		return // the times do not follow the assumptions above
	}
	if !k.known || low > k.high || high < k.low {
		k.low, k.high, k.known = low, high, true
		return
	}
	k.low, k.high = max(k.low, low), min(k.high, high)
}

func (k *driverClock) toHost(t int64) int64 { return t + k.low + (k.high-k.low)/2 }
