package shm

import (
	"io"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/outboard-run/outboard"
)

// Side identifies an end of a ring, and so the direction that it writes.
type Side int

// The two sides.
const (
	Client Side = iota
	Worker
)

const (
	// dataLimit bounds a consumer's sleep before it rereads the closed
	// word: it matters only if a peer died between storing that word and ringing.
	dataLimit = time.Second
	// spaceLimit is shorter because a consumer may delay the space bell.
	spaceLimit = 10 * time.Millisecond
)

// A Ring is one end of a ring.
type Ring struct {
	file   *os.File
	mem    mapping
	area   uint64
	shared *atomic.Uint32 // the closed word, which the peer may overwrite
	closed atomic.Uint32  // our own copy: once set it never changes
	out    producer
	in     consumer

	dataLimit, spaceLimit time.Duration // the constants, except in tests
}

type producer struct {
	direction
	buf  []byte
	head uint64 // our own; the shared word is only for the peer
	tail uint64 // the greatest value that passed validation
}

type consumer struct {
	direction
	buf    []byte
	tail   uint64
	head   uint64
	silent uint64 // bytes released since the space bell last rang
	opened uint64 // tail when this end was opened

	patience AdaptiveWait // of Next
	quarter  uint64
}

// Create creates a ring and returns its client end. area is the size of each
// direction in bytes, a power of two.
func Create(area int) (*Ring, error) {
	f, err := NewFile(area)
	if err != nil {
		return nil, err
	}
	r, err := Open(f, Client)
	if err != nil {
		_ = f.Close()
	}
	return r, err
}

// Open maps one end of a ring that another process created. On success the ring
// owns f and closes it in Unmap. It fails with [outboard.Invalid] if f is not
// a ring or could be resized.
func Open(f *os.File, side Side) (*Ring, error) {
	area, err := inspect(f)
	if err != nil {
		return nil, err
	}
	m, err := mapRing(f.Fd(), area)
	if err != nil {
		return nil, err
	}
	in, out := 1, 0
	if side == Worker {
		in, out = 0, 1
	}
	r := &Ring{
		file: f, mem: m, area: area,
		shared: (*atomic.Uint32)(unsafe.Add(m.control, offClosed)),
		out:    producer{direction: directionAt(m.control, out), buf: m.areas[out]},
		in:     consumer{direction: directionAt(m.control, in), buf: m.areas[in], quarter: area / 4},

		dataLimit: dataLimit, spaceLimit: spaceLimit,
	}
	r.adopt()
	return r, nil
}

// adopt copies the positions of a ring that may be in use already. The first Reserve or Next
// validates them.
func (r *Ring) adopt() {
	r.out.head, r.out.tail = r.out.direction.head.Load(), r.out.direction.tail.Load()
	r.in.tail = r.in.direction.tail.Load()
	r.in.head, r.in.opened = r.in.tail, r.in.tail
}

// Received returns the number of bytes that the peer has published since this end was opened,
// whether Next has returned them or not. Any goroutine may call it until Unmap.
func (r *Ring) Received() uint64 { return r.in.direction.head.Load() - r.in.opened }

// File returns the ring's memory, to be passed to the process of the other end. The ring
// owns it: the caller must not close it.
func (r *Ring) File() *os.File { return r.file }

// Area returns the size of each direction in bytes, which bounds the arguments of Next and
// Reserve.
func (r *Ring) Area() int { return int(r.area) }

// Closed reports whether the ring is closed, and returns the reason.
func (r *Ring) Closed() (Reason, bool) {
	word := r.closed.Load()
	if word == 0 {
		if word = r.shared.Load(); word == 0 {
			return 0, false
		}
		r.closed.CompareAndSwap(0, word)
		word = r.closed.Load()
	}
	return Reason(word - 1), true
}

// Close closes both directions and wakes the goroutines that sleep on either end. The
// first reason wins; closing again does nothing. Bytes committed before can
// still be read, unless the reason is Corrupt.
func (r *Ring) Close(reason Reason) error {
	r.shared.CompareAndSwap(0, 1+uint32(reason))
	r.closed.CompareAndSwap(0, max(r.shared.Load(), 1))
	for _, d := range []*direction{&r.in.direction, &r.out.direction} {
		ringAlways(d.data, d.dataSleeper)
		ringAlways(d.space, d.spaceSleeper)
	}
	return nil
}

// Fail closes the ring with the kind of err as its reason, or Done for nil and io.EOF.
func (r *Ring) Fail(err error) error { return r.Close(ReasonOf(err)) }

// Unmap unmaps the memory and closes the file. No method of the ring may be in progress, and
// neither the ring nor its slices may be used afterwards.
func (r *Ring) Unmap() {
	r.mem.unmap()
	_ = r.file.Close()
}

// corrupt closes the ring because the peer wrote an invalid value. The reason stays Corrupt on
// this end even if the peer overwrites the closed word.
func (r *Ring) corrupt() {
	r.closed.CompareAndSwap(0, 1+uint32(Corrupt))
	_ = r.Close(Corrupt)
}

// checkSize validates the size that a caller requests, and returns at least 1.
func (r *Ring) checkSize(op string, least int) (uint64, error) {
	if least < 0 || uint64(least) > r.area {
		return 0, outboard.Errorf(outboard.Invalid, op, "%d bytes at once from an area of %d", least, r.area)
	}
	return uint64(max(least, 1)), nil
}

// Next waits until at least least bytes can be read (one, if least is 0) and
// returns all readable bytes. After a clean close it returns the remaining bytes, then io.EOF,
// or io.ErrUnexpectedEOF if fewer than least remain; after any other close it returns an
// [*outboard.Error] with the reason's kind.
func (r *Ring) Next(least int) ([]byte, error) {
	want, err := r.checkSize("ring next", least)
	if err != nil {
		return nil, err
	}
	for {
		// The closed word is read first, so that bytes committed before the close
		// are visible to readable.
		reason, closed := r.Closed()
		if closed && reason == Corrupt {
			return nil, reason.Err()
		}
		b := r.readable()
		switch {
		case uint64(len(b)) >= want:
			return b, nil
		case closed && len(b) > 0 && reason == Done:
			return nil, io.ErrUnexpectedEOF
		case closed:
			return nil, reason.Err()
		}
		r.awaitData(want, r.dataLimit)
	}
}

// AwaitNext waits at most for limit until Next(least) would not block: until the next least bytes
// are there, or the ring is closed. It reports whether that is so.
func (r *Ring) AwaitNext(least int, limit time.Duration) bool {
	want, err := r.checkSize("ring await", least)
	for until := time.Now().Add(limit); err == nil; {
		if _, closed := r.Closed(); closed || uint64(len(r.readable())) >= want {
			return true
		}
		left := time.Until(until)
		if left <= 0 {
			return false
		}
		r.awaitData(want, min(left, r.dataLimit))
	}
	return true
}

// TryNext returns all bytes that can be read now, nil if none.
func (r *Ring) TryNext() []byte {
	if reason, closed := r.Closed(); closed && reason == Corrupt {
		return nil
	}
	return r.readable()
}

// readable reads the peer's head once and validates it.
func (r *Ring) readable() []byte {
	c := &r.in
	head := c.direction.head.Load()
	n := head - c.tail
	if n > r.area || n < c.head-c.tail {
		r.corrupt()
		return nil
	}
	c.head = head
	if n == 0 {
		return nil
	}
	at := c.tail & (r.area - 1)
	return c.buf[at : at+n : at+n]
}

// awaitData waits for the peer's next bytes, at most for about limit.
func (r *Ring) awaitData(want uint64, limit time.Duration) {
	c := &r.in
	r.announceSpace() // the peer may need space before it can send the awaited bytes
	ready := func() bool {
		_, closed := r.Closed()
		return closed || c.direction.head.Load()-c.tail >= want
	}
	begin := time.Now()
	if !c.patience.spin(ready) {
		sleep(c.data, c.dataSleeper, limit, ready)
	}
	c.patience.observe(time.Since(begin))
}

// Release frees the first n bytes that Next returned.
func (r *Ring) Release(n int) {
	c := &r.in
	if n < 0 || uint64(n) > c.head-c.tail {
		panic("shm: release of more than was read") //nolint:forbidigo // a mistake of the caller
	}
	c.tail += uint64(n)
	c.direction.tail.Store(c.tail)
	// A sleeping producer is not woken for every small release: it would fill that
	// space and sleep again.
	if c.silent += uint64(n); c.silent >= c.quarter || c.tail == c.head {
		r.announceSpace()
	}
}

func (r *Ring) announceSpace() {
	if r.in.silent > 0 {
		r.in.silent = 0
		ring(r.in.space, r.in.spaceSleeper)
	}
}

// Reserve waits until at least least bytes are free (one, if least is 0) and
// returns all free space. If the ring is closed it returns the reason as an
// error, io.EOF for a clean close.
func (r *Ring) Reserve(least int) ([]byte, error) {
	want, err := r.checkSize("ring reserve", least)
	if err != nil {
		return nil, err
	}
	for {
		if reason, closed := r.Closed(); closed {
			return nil, reason.Err()
		}
		if b := r.free(); uint64(len(b)) >= want {
			return b, nil
		}
		r.awaitSpace(want)
	}
}

// TryReserve returns all space that is free now, nil if there is none or the
// ring is closed.
func (r *Ring) TryReserve() []byte {
	if _, closed := r.Closed(); closed {
		return nil
	}
	if b := r.free(); len(b) > 0 {
		return b
	}
	return nil
}

func (r *Ring) free() []byte {
	p := &r.out
	tail := p.direction.tail.Load()
	used := p.head - tail
	if used > r.area || used > p.head-p.tail {
		r.corrupt()
		return nil
	}
	p.tail = tail
	at, n := p.head&(r.area-1), r.area-used
	return p.buf[at : at+n : at+n]
}

func (r *Ring) awaitSpace(want uint64) {
	p := &r.out
	sleep(p.space, p.spaceSleeper, r.spaceLimit, func() bool {
		_, closed := r.Closed()
		return closed || r.area-(p.head-p.direction.tail.Load()) >= want
	})
}

// Commit publishes the first n bytes that Reserve returned and wakes the
// consumer if it sleeps.
func (r *Ring) Commit(n int) {
	p := &r.out
	if n < 0 || uint64(n) > r.area-(p.head-p.tail) {
		panic("shm: commit of more than was reserved") //nolint:forbidigo // a mistake of the caller
	}
	if n == 0 {
		return
	}
	p.head += uint64(n)
	p.direction.head.Store(p.head)
	ring(p.data, p.dataSleeper)
}
