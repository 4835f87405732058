package node

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

// Bounds of the requests for models that a node serves at a time: of all clients, and of one. A
// connection of HTTP/2 carries up to maxModelStreams, so the number of connections does not bound
// them.
const (
	maxModelRequests  = maxForwardedConns
	maxClientRequests = maxModelRequests / 2
)

// modelRequests counts the requests for models that are being served.
type modelRequests struct {
	all atomic.Int64 // at the port of models, admitted or not

	mu      sync.Mutex
	clients map[string]int
}

// serveBounded has next serve a request of HTTP/2 unless too many are being served. Refusals wait for
// their clients as well: beyond twice the bound, streams are reset.
func (q *modelRequests) serveBounded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	n := q.all.Add(1)
	defer q.all.Add(-1)
	switch {
	case n > 2*maxModelRequests:
		panic(http.ErrAbortHandler)
	case n > maxModelRequests:
		refuseModel(w, r, outboard.Errorf(outboard.Busy, "", "%d requests for models are being served on this node: send it again later", maxModelRequests))
	default:
		next.ServeHTTP(w, r)
	}
}

// enter counts a request of a client until release is called.
func (q *modelRequests) enter(client string) (release func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clients[client] >= maxClientRequests {
		return nil, outboard.Errorf(outboard.Busy, "", "%d requests of this client are being served on this node: send it again later", maxClientRequests)
	}
	if q.clients == nil {
		q.clients = map[string]int{}
	}
	q.clients[client]++
	return func() { q.leave(client) }, nil
}

func (q *modelRequests) leave(client string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clients[client]--; q.clients[client] == 0 {
		delete(q.clients, client)
	}
}

// serveClient is ServeHTTP for the listener of models: it bounds how slow a client may be, and how
// many requests clients may have.
func (m *models) serveClient(w http.ResponseWriter, r *http.Request) {
	gateway.BoundBody(w, r, m.clientTimeout())
	if r.ProtoMajor < 2 {
		m.ServeHTTP(w, r)
		return
	}
	paced, finish := gateway.PaceStream(w, m.clientTimeout())
	defer finish()
	m.requests.serveBounded(paced, r, m)
}
