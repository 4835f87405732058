package remote

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// account counts the bytes of messages that a connection has received and its calls have not.
type account struct {
	limit int64
	used  atomic.Int64
}

// reserve counts n bytes, unless that exceeds the limit. Refused bytes are never counted: a smaller
// message of another call would be refused because of them.
func (a *account) reserve(n int) bool {
	for {
		used := a.used.Load()
		if int64(n) > a.limit-used {
			return false
		}
		if a.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

func (a *account) release(n int) { a.used.Add(-int64(n)) }

// serviceCounts bounds the calls in flight of each service to a share of the connection's, so
// that a slow service leaves capacity to others.
type serviceCounts struct {
	total, limit int

	mu     sync.Mutex
	all    int
	counts map[string]int
}

func (s *serviceCounts) init(total int) {
	s.total, s.limit, s.counts = total, total-total/4, map[string]int{}
}

// acquire counts a call, or returns the error of a call beyond the limits.
func (s *serviceCounts) acquire(service string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.counts[service]; {
	case s.all >= s.total:
		return status.Errorf(codes.ResourceExhausted, "%d calls are in flight to the other node: at most %d", s.all, s.total)
	case n >= s.limit:
		return status.Errorf(codes.ResourceExhausted, "%d calls of %s are in flight to the other node: at most %d of one service", n, service, s.limit)
	default:
		s.counts[service] = n + 1
	}
	s.all++
	return nil
}

func (s *serviceCounts) end(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.counts[service]--; s.counts[service] == 0 {
		delete(s.counts, service)
	}
}
