package state

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// keepersQueue is the queue of the nodes that answer requests: each request reaches one.
const keepersQueue = "keepers"

// AuthorityLog is the name of the log that only nodes that keep a copy of the state can read
// and write. It is for the key of the pool's authority.
const AuthorityLog = authorityLog

// AuthorityKey is the key of the authorities in that log: the last record is in force.
const AuthorityKey = "keys"

// SendRequest sends a request to one of the nodes that keep the state, which know this node by
// name, and returns the answer. It waits while there is no such node.
func (s *State) SendRequest(ctx context.Context, request []byte) (answer []byte, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		m, err := s.nc.RequestWithContext(ctx, requestsPrefix+s.name, request)
		if err != nil {
			return err
		}
		answer = m.Data
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask the nodes that keep the pool's state: %w", err)
	}
	return answer, nil
}

// maxRequests bounds the requests of one node that are answered at a time: others wait for none of
// them. The node repeats those beyond it.
const maxRequests = 64

// requestCounts counts the requests that are answered, by node.
type requestCounts struct {
	mu  sync.Mutex
	all map[string]int
}

// acquire counts a request, and returns false if the node has too many.
func (c *requestCounts) acquire(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[node] >= maxRequests {
		return false
	}
	c.all[node]++
	return true
}

// release ends a request.
func (c *requestCounts) release(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[node]--; c.all[node] == 0 {
		delete(c.all, node)
	}
}

// ServeRequests answers requests of nodes by f until stop is called. Only a node that keeps a copy
// of the state receives them. The state has authenticated the requesting node, whose name f
// receives.
func (s *State) ServeRequests(f func(node string, request []byte) (answer []byte)) (stop func(), err error) {
	counts := requestCounts{all: make(map[string]int)}
	sub, err := s.nc.QueueSubscribe(requestsPrefix+"*", keepersQueue, func(m *nats.Msg) {
		node := strings.TrimPrefix(m.Subject, requestsPrefix)
		if !counts.acquire(node) {
			return
		}
		s.running.Go(func() {
			defer counts.release(node)
			// An error means that the connection has ended: the node repeats its request.
			_ = m.Respond(f(node, m.Data))
		})
	})
	if err != nil {
		return nil, unreachable("serve requests of nodes", err)
	}
	return func() {
		// The connection may have ended, and the subscription with it.
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			s.log.Debug("serve requests of nodes", "error", err)
		}
	}, nil
}

// Entries returns the present entries whose keys begin with prefix.
func (s *State) Entries(ctx context.Context, prefix string) ([]Entry, error) {
	all, _, err := s.snapshot(ctx)
	var found []Entry
	for _, e := range all {
		if !e.Deleted && strings.HasPrefix(e.Key, prefix) {
			found = append(found, e)
		}
	}
	return found, err
}
