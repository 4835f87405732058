package serve

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// A Sequence names the sequence to which a Request belongs. The instance that executed its first
// request executes all of them, one after the other.
type Sequence struct {
	// ID is the client's name of the sequence, "" for a request that belongs to none. Client
	// distinguishes sequences of different clients.
	ID, Client string
	// Start and End mark the first and the last request.
	Start, End bool
}

// Limits of the sequences on a node, of all clients and of one client, and how long the node waits
// for a sequence's next request.
const (
	maxSequences       = 4096
	maxClientSequences = 1024
	sequenceIdle       = time.Minute
)

type sequenceKey struct{ client, model, version, id string }

func keyOfSequence(r *Request) sequenceKey {
	return sequenceKey{r.Sequence.Client, r.Model, r.Version, r.Sequence.ID}
}

// A sequence is a sequence whose requests this node executes or sends to another node.
type sequence struct {
	turn chan struct{} // of capacity 1: held while a request is executed
	// Only the holder of turn uses the fields that follow.
	node     outboard.NodeID // node that executes the requests
	instance *instance       // in use, if the node is this one
	process  *worker.Worker  // the instance's process at the start
	number   int64           // by which the engine identifies the sequence
	ended    bool
}

// sequences are the sequences of a node. Its zero value is empty.
type sequences struct {
	mu      sync.Mutex
	all     map[sequenceKey]*sequence
	used    map[sequenceKey]time.Time // times of the last requests
	clients map[string]int            // sequences of each client
}

// any reports whether a sequence is under way.
func (s *sequences) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// open returns the sequence of a request, which it creates for the first request.
func (s *sequences) open(r *Request) (*sequence, error) {
	key := keyOfSequence(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.all[key]; q != nil {
		s.used[key] = time.Now()
		return q, nil
	}
	if !r.Sequence.Start {
		return nil, errNoSequence(r)
	}
	if len(s.all) >= maxSequences || s.clients[key.client] >= maxClientSequences {
		return nil, outboard.Errorf(outboard.Exhausted, "infer", "%d sequences are under way on this node, of which a client may have %d: end some, or try again later",
			len(s.all), maxClientSequences)
	}
	if s.all == nil {
		s.all, s.used, s.clients = map[sequenceKey]*sequence{}, map[sequenceKey]time.Time{}, map[string]int{}
	}
	q := &sequence{turn: make(chan struct{}, 1)}
	s.all[key], s.used[key] = q, time.Now()
	s.clients[key.client]++
	return q, nil
}

func errNoSequence(r *Request) error {
	return outboard.Errorf(outboard.NotFound, "infer", "this node knows no sequence %q of the model %s: it has ended, or waited for more than %v; its first request has sequence_start, and all of them go to one node",
		r.Sequence.ID, r.Model, sequenceIdle)
}

// end removes a sequence. The caller holds its turn.
func (s *sequences) end(key sequenceKey, q *sequence) {
	q.ended = true
	q.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key] != q {
		return
	}
	delete(s.all, key)
	delete(s.used, key)
	if s.clients[key.client]--; s.clients[key.client] == 0 {
		delete(s.clients, key.client)
	}
}

// endIdle removes the sequences whose last request was before a time.
func (s *sequences) endIdle(before time.Time) {
	s.mu.Lock()
	idle := map[sequenceKey]*sequence{}
	for key, at := range s.used {
		if at.Before(before) {
			idle[key] = s.all[key]
		}
	}
	s.mu.Unlock()
	for key, q := range idle {
		select {
		case q.turn <- struct{}{}:
			s.end(key, q)
			<-q.turn
		default: // a request is being executed
		}
	}
}

// leave releases the instance of a sequence, so that it can be unloaded.
func (q *sequence) leave() {
	if q.instance != nil {
		q.instance.release()
	}
	q.instance, q.node = nil, ""
}

// inferSequence executes a request of a sequence after the preceding ones.
func inferSequence(ctx context.Context, s *Server, r *Request, v *repository.Version) (*Response, error) {
	q, err := acquireSequence(ctx, s, r)
	if err != nil {
		return nil, err
	}
	defer func() { <-q.turn }()
	if r.Sequence.Start {
		q.leave() // its client may restart it
	}
	response, err := inferNext(ctx, s, q, r, v)
	if r.Sequence.End || q.node == "" {
		s.sequences.end(keyOfSequence(r), q)
	}
	return response, err
}

// acquireSequence returns the sequence of a request when it is the request's turn.
func acquireSequence(ctx context.Context, s *Server, r *Request) (*sequence, error) {
	for {
		q, err := s.sequences.open(r)
		if err != nil {
			return nil, err
		}
		select {
		case q.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !q.ended {
			return q, nil
		}
		<-q.turn // it ended in the meantime
	}
}

// inferNext executes a request of a sequence in its turn, the first request on the best node.
func inferNext(ctx context.Context, s *Server, q *sequence, r *Request, v *repository.Version) (*Response, error) {
	if q.node != "" {
		return inferAt(ctx, s, q, r, v)
	}
	nodes := []outboard.NodeID{s.opts.Self}
	if !r.Local {
		nodes = nil
		for _, c := range s.candidates(v, r.Version != "") {
			nodes = append(nodes, c.Node)
		}
	}
	var attempts attempts
	for _, node := range nodes {
		q.node = node
		response, err := inferAt(ctx, s, q, r, v)
		if err == nil {
			return response, nil
		}
		q.leave()
		if !isRetriable(ctx, err) {
			return nil, err
		}
		if attempts.add(err) {
			break
		}
	}
	return nil, cmp.Or(attempts.err(v.Name), errNoNode(v.Name))
}

// inferAt executes a request on the node of its sequence.
func inferAt(ctx context.Context, s *Server, q *sequence, r *Request, v *repository.Version) (*Response, error) {
	if q.node != s.opts.Self {
		return s.opts.Peers.Infer(ctx, q.node, r)
	}
	if q.instance == nil {
		i, err := s.acquire(ctx, v, r.Version != "")
		if err != nil {
			return nil, err
		}
		if err := i.ensureRunning(ctx); err != nil {
			i.release()
			return nil, err
		}
		q.instance, q.process, q.number = i, i.process(), rand.Int64N(math.MaxInt64)+1 //nolint:gosec // it only has to differ from others
	}
	if q.isLost() {
		q.leave()
		return nil, errLostSequence(r)
	}
	own := *r
	own.engineSequence = model.Sequence{Number: q.number, Start: r.Sequence.Start, End: r.Sequence.End}
	response, err := inferOn(ctx, s, q.instance, &own, v)
	if q.instance.process() != q.process { // it ended before the request arrived
		q.leave()
		return nil, errLostSequence(r)
	}
	return response, err
}

// isLost reports whether the process that executed the sequence's first request has ended.
func (q *sequence) isLost() bool {
	return q.instance.process() != q.process || isDone(q.process.Done())
}

func errLostSequence(r *Request) error {
	return outboard.Errorf(outboard.Conflict, "infer", "the process that served the sequence %q of the model %s has ended, and its state with it: start the sequence again",
		r.Sequence.ID, r.Model)
}

func (i *instance) process() *worker.Worker {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.worker
}
