package oip

import (
	"sync"

	"github.com/outboard-run/outboard"
)

// Limits of the memory of streams of requests, in bytes.
const (
	maxStreamBytes = 1 << 30
	// ownStreamBytes is the size of a stream's requests and responses above which its next request
	// is not read.
	ownStreamBytes = maxStreamBytes / 16
)

// streamBytes counts the bytes of the requests and responses that the streams of all connections
// hold.
type streamBytes struct {
	limit int64

	mu   sync.Mutex
	held int64
}

// reserve counts a request, or returns an error if the streams would hold more than the limit.
func (b *streamBytes) reserve(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+n > b.limit {
		return outboard.Errorf(outboard.Exhausted, "infer", "streams of requests hold %v of at most %v: read the answers, or try again later",
			outboard.Bytes(b.held), outboard.Bytes(b.limit))
	}
	b.held += n
	return nil
}

// add counts bytes that are already in memory or, if n is negative, that were freed.
func (b *streamBytes) add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += n
}

// A streamShare counts the bytes that one stream holds, and adds them to those of all streams.
type streamShare struct {
	all *streamBytes

	mu     sync.Mutex
	freed  sync.Cond
	held   int64
	closed bool
}

func newStreamShare(all *streamBytes) *streamShare {
	s := &streamShare{all: all}
	s.freed.L = &s.mu
	return s
}

// wait waits until the stream holds little enough that another request may be read. It reports
// whether the stream continues.
func (s *streamShare) wait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held > ownStreamBytes && !s.closed {
		s.freed.Wait()
	}
	return !s.closed
}

// reserve counts a request.
func (s *streamShare) reserve(n int64) error {
	err := s.all.reserve(n)
	if err == nil {
		s.change(n)
	}
	return err
}

// add counts a response.
func (s *streamShare) add(n int64) {
	s.all.add(n)
	s.change(n)
}

// release subtracts a request and its response.
func (s *streamShare) release(n int64) {
	s.all.add(-n)
	s.change(-n)
}

func (s *streamShare) change(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held += n
	s.freed.Broadcast()
}

// close ends the waiting of a stream that has failed.
func (s *streamShare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.freed.Broadcast()
}
