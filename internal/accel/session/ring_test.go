package session

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// testRing behaves as a ring does: bounded, contiguous, waiting on both sides.
type testRing struct {
	mu       sync.Mutex
	cond     sync.Cond
	area     int
	data     []byte
	reserved []byte
	closed   bool
}

func newTestRing(area int) *testRing {
	r := &testRing{area: area}
	r.cond.L = &r.mu
	return r
}

var errTooMuch = errors.New("more than the area holds")

func (r *testRing) Next(n int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.area {
		return nil, errTooMuch
	}
	for len(r.data) < n {
		if r.closed {
			return nil, io.ErrUnexpectedEOF
		}
		r.cond.Wait()
	}
	return slices.Clip(r.data), nil
}

func (r *testRing) TryNext() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.data)
}

func (r *testRing) Release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.data[:n]) // a reader of released memory sees zeroes
	r.data = r.data[n:]
	r.cond.Broadcast()
}

func (r *testRing) Reserve(n int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.area {
		return nil, errTooMuch
	}
	for r.area-len(r.data) < n && !r.closed {
		r.cond.Wait()
	}
	if r.closed {
		return nil, io.ErrClosedPipe
	}
	r.reserved = make([]byte, r.area-len(r.data))
	return r.reserved, nil
}

func (r *testRing) Commit(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A copy: what the reader holds must not move.
	r.data = append(slices.Clip(r.data), r.reserved[:n]...)
	r.cond.Broadcast()
}

func (r *testRing) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.cond.Broadcast()
}

// fixedSource gives out a byte string and then an error.
type fixedSource struct{ data []byte }

func (s *fixedSource) Next(n int) ([]byte, error) {
	if n > len(s.data) {
		return nil, io.ErrUnexpectedEOF
	}
	return s.data, nil
}

func (s *fixedSource) TryNext() []byte { return s.data }

func (s *fixedSource) Release(n int) { s.data = s.data[n:] }
