package grpcconn

import (
	"sync"

	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// A Budget bounds what the clients of a server hold together, and what one of them holds: bytes, or
// calls. Its methods may be called concurrently.
type Budget struct {
	all, each int64
	refuse    func(held, all, each int64) error

	mu      sync.Mutex
	held    int64
	clients map[string]int64
}

// NewBudget returns a budget of which all clients may hold all and one client each. Reservations
// beyond it get the error of refuse.
func NewBudget(all, each int64, refuse func(held, all, each int64) error) *Budget {
	return &Budget{all: all, each: each, refuse: refuse, clients: map[string]int64{}}
}

// Reserve reserves a part of the budget for a client until it is released.
func (b *Budget) Reserve(client string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+n > b.all || b.clients[client]+n > b.each {
		return b.refuse(b.held, b.all, b.each)
	}
	b.held += n
	b.clients[client] += n
	return nil
}

// Release releases a part of what a client has reserved.
func (b *Budget) Release(client string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.clients[client] -= n; b.clients[client] <= 0 {
		delete(b.clients, client)
	}
}

// Held returns what all clients hold.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// isScarce reports whether more than half of the budget is held, or of a client's share.
func (b *Budget) isScarce(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held > b.all/2 || b.clients[client] > b.each/2
}

// inflating is the client for which messages are counted while they are decompressed: of which call
// they are is not known then.
const inflating = "(decompression)"

// inflatingBudget is the budget of messages that are being decompressed.
type inflatingBudget struct{ budget *Budget }

// Inflating returns the part of the budget for messages that are being decompressed: as much as one
// client may hold.
func (b *Budget) Inflating() inflate.Budget { return inflatingBudget{b} }

// Reserve implements inflate.Budget.
func (b inflatingBudget) Reserve(n int64) error { return b.budget.Reserve(inflating, n) }

// Release implements inflate.Budget.
func (b inflatingBudget) Release(n int64) { b.budget.Release(inflating, n) }
