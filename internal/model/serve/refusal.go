package serve

import (
	"cmp"
	"time"

	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// Refuse returns the error of a request whose tensors have not been received yet, if Infer would
// refuse the complete request at present, and counts the refusal. rows is the first dimension of
// the inputs; with 0 the parameters of the request are not known either, and only a full queue
// refuses it. Requests that other nodes or other versions may serve are not refused.
func (s *Server) Refuse(r *Request, rows int) error {
	v, err := s.version(r.Model, r.Version)
	if err != nil {
		return err
	}
	if r.Sequence.ID != "" || rows == 0 && s.sequences.any() {
		return nil
	}
	q := busyQueue(s, v, r.Version != "")
	if q == nil {
		return nil
	}
	if best := s.candidates(v, r.Version != ""); len(best) == 0 || best[0].Node != s.opts.Self {
		return nil
	}
	var deadline time.Time
	if rows > 0 {
		deadline = time.Now().Add(cmp.Or(r.Timeout, time.Duration(v.Config.Queue.Timeout), defaultTimeout))
	}
	return q.Refuse(r.Sequence.Client, rows, deadline)
}

// busyQueue returns the queue of the instance that gets the requests of a version on this node, nil
// if no request waits in it, the instance is not ready, or a canary shares the requests.
func busyQueue(s *Server, v *repository.Version, exact bool) *queue.Queue {
	i := soleInstance(s, v, exact)
	if !isUsable(i) {
		return nil
	}
	i.mu.Lock()
	q := i.queue
	i.mu.Unlock()
	if waiting, _, _ := q.Expect(); waiting == 0 {
		return nil
	}
	return q
}

// soleInstance returns the instance that gets all requests of a version on this node, nil if there
// is none.
func soleInstance(s *Server, v *repository.Version, exact bool) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if exact {
		return s.loaded[keyOf(v)]
	}
	r := s.routes[v.Name]
	if r == nil || r.canary > 0 {
		return nil
	}
	return r.current
}
