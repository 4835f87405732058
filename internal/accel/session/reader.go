package session

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Source is the reading end of a ring.
type Source interface {
	// Next waits until at least n bytes can be read and returns all readable bytes, as one
	// contiguous part of ring memory.
	Next(n int) ([]byte, error)
	// TryNext returns the readable bytes without waiting.
	TryNext() []byte
	// Release returns the space of n bytes to the sender.
	Release(n int)
}

const (
	// inlineBody is the largest body that is copied out of the ring at once. The copy is cheap,
	// frees the ring's space, and cannot change while it is decoded.
	inlineBody = 64 << 10
	// pieceSize is the largest piece that NextBulk returns: small enough to stay in a core's cache
	// and to keep the peer busy with the next piece, large enough that a driver call per piece does
	// not matter.
	pieceSize = 512 << 10
)

// Reader reads messages from a ring. Only one goroutine may use it.
type Reader struct {
	src    Source
	area   int
	serial uint64
	bytes  atomic.Uint64

	scratch []byte // body of small messages; memory that Go's runtime never moves
	large   []byte // body of the current message, when it needed memory of its own
	held    int    // bytes of the ring that the current message still covers
	bulk    uint64 // bulk bytes of the current message that are not yet read
	pad     int    // padding after the bulk
	waited  time.Duration
	start   uint64 // where the current message begins, in bytes since the Reader was created
	end     uint64 // where the current message ends
}

// NewReader returns a Reader of src, the reading end of a ring whose area has area bytes.
func NewReader(src Source, area int) (*Reader, error) {
	scratch, err := memory(inlineBody)
	if err != nil {
		return nil, err
	}
	return &Reader{src: src, area: area, scratch: scratch}, nil
}

// Close frees the Reader's memory. It does not close the ring.
func (r *Reader) Close() error {
	r.dropLarge()
	if r.scratch == nil {
		return nil
	}
	err := unix.Munmap(r.scratch)
	r.scratch = nil
	return err
}

// Bytes returns the number of received bytes, without padding. Any goroutine may call it.
func (r *Reader) Bytes() uint64 { return r.bytes.Load() }

// Position returns where the current message begins: the number of bytes, with padding, that the
// peer has sent before it.
func (r *Reader) Position() uint64 { return r.start }

// Waited returns how long the Reader has waited for bulk that the peer had announced and not yet
// sent.
func (r *Reader) Waited() time.Duration { return r.waited }

// Idle reports whether Next would have to wait for the peer.
func (r *Reader) Idle() bool {
	return len(r.src.TryNext()) < r.held+int(min(r.bulk, HeaderSize))+HeaderSize
}

// Next ends the current message, skipping bulk that was not read, and waits for the next one. The
// body lies outside Go's heap and may be passed to a driver.
func (r *Reader) Next() (Header, []byte, error) {
	if err := r.finish(); err != nil {
		return Header{}, nil, err
	}
	b, err := r.src.Next(HeaderSize)
	if err != nil {
		return Header{}, nil, err
	}
	var h Header
	h.get(b)
	if err := h.validate(r.serial + 1); err != nil {
		return Header{}, nil, err
	}
	r.serial++
	r.bytes.Add(uint64(h.Size) + h.Bulk)
	body, err := r.body(int(h.Size), h.Bulk > 0)
	r.bulk, r.pad = h.Bulk, padding(h.Bulk)
	r.start, r.end = r.end, r.end+uint64(h.Size)+h.Bulk+uint64(r.pad)
	return h, body, err
}

// body returns the body of a message of the given size. A body that is followed by bulk never stays
// in the ring, so that the bulk can be released in pieces.
func (r *Reader) body(size int, bulk bool) ([]byte, error) {
	switch {
	case size-HeaderSize <= inlineBody && size <= r.area/2:
		b, err := r.src.Next(size)
		if err != nil {
			return nil, err
		}
		n := copy(r.scratch, b[HeaderSize:size])
		r.src.Release(size)
		return r.scratch[:n:n], nil
	case size <= r.area/2 && !bulk:
		b, err := r.src.Next(size)
		if err != nil {
			return nil, err
		}
		r.held = size
		return b[HeaderSize:size:size], nil
	}
	return r.assemble(size)
}

// assemble copies a body that is too large to be contained in the ring as a whole. Its memory grows
// with the received bytes, not with the size in the header.
func (r *Reader) assemble(size int) ([]byte, error) {
	r.src.Release(HeaderSize)
	need, have := size-HeaderSize, 0
	for have < need {
		b, err := r.src.Next(1)
		if err != nil {
			return nil, err
		}
		b = b[:min(len(b), need-have)]
		if err := r.growLarge(have, have+len(b), need); err != nil {
			return nil, err
		}
		have += copy(r.large[have:], b)
		r.src.Release(len(b))
	}
	return r.large[:need:need], nil
}

func (r *Reader) growLarge(used, want, most int) error {
	if want <= len(r.large) {
		return nil
	}
	m, err := memory(min(most, max(2*len(r.large), want, r.area)))
	if err != nil {
		return err
	}
	copy(m, r.large[:used])
	r.dropLarge()
	r.large = m
	return nil
}

func (r *Reader) dropLarge() {
	if r.large != nil {
		_ = unix.Munmap(r.large) // the Reader's own memory: it cannot fail
		r.large = nil
	}
}

// NextBulk returns the next piece of the message's bulk: ring memory, at least one byte. It returns
// io.EOF at the end of the bulk.
func (r *Reader) NextBulk() ([]byte, error) {
	return r.NextBulkOf(1)
}

// NextBulkOf is NextBulk for pieces whose size is a multiple of unit, which must not exceed a
// quarter of the area; only the last piece may be smaller.
func (r *Reader) NextBulkOf(unit int) ([]byte, error) {
	if r.bulk == 0 {
		return nil, io.EOF // the held part may be the body: it stays until Next
	}
	r.release()
	if unit < 1 || unit > r.area/4 {
		return nil, fmt.Errorf("session: bulk unit of %d bytes in an area of %d", unit, r.area)
	}
	most := max(unit, min(pieceSize, r.area/4)/unit*unit)
	want := clampInt(r.bulk, most)
	b, err := r.nextPiece(want)
	if err != nil {
		return nil, err
	}
	r.held, r.bulk = want, r.bulk-uint64(want)
	return b[:want:want], nil
}

// nextPiece waits for want bytes, and measures the wait if there are fewer.
func (r *Reader) nextPiece(want int) ([]byte, error) {
	if b := r.src.TryNext(); len(b) >= want {
		return b, nil
	}
	begin := time.Now()
	b, err := r.src.Next(want)
	r.waited += time.Since(begin)
	return b, err
}

// BulkLeft returns the number of bulk bytes that NextBulk has still to return.
func (r *Reader) BulkLeft() uint64 { return r.bulk }

func (r *Reader) release() {
	if r.held > 0 {
		r.src.Release(r.held)
		r.held = 0
	}
}

func (r *Reader) finish() error {
	r.release()
	for r.bulk > 0 {
		b, err := r.src.Next(1)
		if err != nil {
			return err
		}
		n := clampInt(r.bulk, len(b))
		r.src.Release(n)
		r.bulk -= uint64(n)
	}
	if r.pad > 0 {
		if _, err := r.src.Next(r.pad); err != nil {
			return err
		}
		r.src.Release(r.pad)
		r.pad = 0
	}
	r.dropLarge()
	return nil
}

// memory allocates zeroed memory outside Go's heap.
func memory(n int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("session: map %d bytes: %w", n, err)
	}
	return m, nil
}
