// Package turns orders the waiting requests of several clients by start-time fair queueing (Goyal et
// al., 1996), with requests of one length: the requests of a client have consecutive turns, which begin
// with the present one. So the first request of a client waits for one request of each other client,
// however many these have. With one client the order is that of arrival.
//
// The priorities of a client order its own requests among the turns that it has: they delay no other
// client.
package turns

import (
	"cmp"
	"slices"
)

// A Turn is the place of one request among those that wait. Client and Priority are set before Add,
// and not changed afterwards.
type Turn struct {
	// Client names the client, "" for all clients without a name.
	Client string
	// Priority orders the requests of the client: higher first, equal priorities in the order of
	// arrival.
	Priority int

	turn    uint64
	arrival uint64 // orders requests of the same turn
}

// Compare compares the order of two requests that wait.
func (t *Turn) Compare(other *Turn) int {
	return cmp.Or(cmp.Compare(t.turn, other.turn), cmp.Compare(t.arrival, other.arrival))
}

// An Order has the requests that wait. Its zero value is empty. One goroutine at a time may use it.
type Order struct {
	present uint64 // the turn of the request that was started last
	arrived uint64
	clients map[string][]*Turn // of each client, in order
}

// Add adds a request. It reports whether requests of the client with a lower priority got later turns.
func (o *Order) Add(t *Turn) (moved bool) {
	if o.clients == nil {
		o.clients = map[string][]*Turn{}
	}
	o.arrived++
	last := o.next(t.Client)
	t.arrival, t.turn = o.arrived, last
	list := o.clients[t.Client]
	at := len(list)
	for at > 0 && list[at-1].Priority < t.Priority {
		at--
	}
	list = slices.Insert(list, at, t)
	for i := at; i < len(list)-1; i++ {
		list[i].turn = list[i+1].turn
		moved = true
	}
	list[len(list)-1].turn = last
	o.clients[t.Client] = list
	return moved
}

// next returns the turn that a client's next request would get.
func (o *Order) next(client string) uint64 {
	if list := o.clients[client]; len(list) > 0 {
		return max(o.present, list[len(list)-1].turn) + 1
	}
	return o.present + 1
}

// Start records that a request is executed. The caller also removes it.
func (o *Order) Start(t *Turn) { o.present = max(o.present, t.turn) }

// Remove removes a request that no longer waits.
func (o *Order) Remove(t *Turn) {
	list := o.clients[t.Client]
	at := slices.Index(list, t)
	if at < 0 {
		return
	}
	if list = slices.Delete(list, at, at+1); len(list) == 0 {
		delete(o.clients, t.Client)
		return
	}
	o.clients[t.Client] = list
}

// Waiting returns how many requests of a client wait.
func (o *Order) Waiting(client string) int { return len(o.clients[client]) }

// IsSole reports whether no other client has requests that wait.
func (o *Order) IsSole(client string) bool {
	return len(o.clients) == 0 || len(o.clients) == 1 && len(o.clients[client]) > 0
}

// Precedes reports whether a request would be executed before, or in the same turn as, the client's
// next one.
func (o *Order) Precedes(t *Turn, client string) bool { return t.turn <= o.next(client) }
