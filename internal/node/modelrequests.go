package node

import (
	"sync"

	"github.com/outboard-run/outboard"
)

// Bounds of the requests for models that a node serves at a time: of all clients, and of one. A
// connection of gRPC carries up to maxModelStreams, so the number of connections does not bound
// them.
const (
	maxModelRequests  = maxForwardedConns
	maxClientRequests = maxModelRequests / 2
)

// modelRequests counts the requests for models that are being served.
type modelRequests struct {
	mu      sync.Mutex
	all     int
	clients map[string]int
}

// enter counts a request of a client until leave is called.
func (q *modelRequests) enter(client string) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all >= maxModelRequests {
		return nil, outboard.Errorf(outboard.Busy, "", "%d requests for models are being served on this node: send it again later", q.all)
	}
	if q.clients[client] >= maxClientRequests {
		return nil, outboard.Errorf(outboard.Busy, "", "%d requests of this client are being served on this node: send it again later", maxClientRequests)
	}
	if q.clients == nil {
		q.clients = map[string]int{}
	}
	q.all++
	q.clients[client]++
	return func() { q.leave(client) }, nil
}

func (q *modelRequests) leave(client string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.clients[client]--; q.clients[client] == 0 {
		delete(q.clients, client)
	}
}
