package guard

import (
	"sync"

	"github.com/outboard-run/outboard"
)

// The charges of what a client has besides bytes, for the memory and the time that it takes of the
// server.
const (
	connCharge         = 128 << 10 // a connection: its buffers and goroutines
	subscriptionCharge = 1 << 10
	costlyCharge       = 64 << 10 // a subscription that Rules call costly
	batchCharge        = 1 << 10  // a batch that has not ended, beside its messages
)

// An Account counts what guards hold for one client on all of its connections, in bytes, and bounds
// it: messages that the client does not read, batches that it has not ended, and what its connections
// and subscriptions are charged. A nil Account has no bound. Its methods may be called concurrently.
type Account struct {
	limit int64

	mu    sync.Mutex
	held  int64
	users int // guards of Accounts
}

// NewAccount returns an account of which nothing is held.
func NewAccount(limit outboard.Bytes) *Account { return &Account{limit: int64(limit)} }

// Held returns how many bytes are held.
func (a *Account) Held() outboard.Bytes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return outboard.Bytes(a.held)
}

// reserve counts n more bytes, or returns an error if the client may not hold them.
func (a *Account) reserve(n int) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held+int64(n) > a.limit {
		return outboard.Errorf(outboard.Busy, "relay the pool's state", "its connections hold %v, of %v at most: it reads too slowly, or has too many of them",
			outboard.Bytes(a.held), outboard.Bytes(a.limit))
	}
	a.held += int64(n)
	return nil
}

// release counts n bytes less.
func (a *Account) release(n int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= int64(n)
}

// Accounts are the accounts of the clients that have connections at present. The zero value has none.
type Accounts struct {
	mu  sync.Mutex
	all map[string]*Account
}

// Open returns the account of a client, and the function to call when its connection has ended. All
// connections of a client share one account.
func (s *Accounts) Open(client string, limit outboard.Bytes) (a *Account, ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a = s.all[client]
	if a == nil {
		a = NewAccount(limit)
		if s.all == nil {
			s.all = make(map[string]*Account)
		}
		s.all[client] = a
	}
	a.users++
	return a, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.users--; a.users == 0 {
			delete(s.all, client)
		}
	}
}

// A holding is what one connection holds of its client's account.
type holding struct {
	account *Account

	mu   sync.Mutex
	held int
}

func (h *holding) reserve(n int) error {
	if err := h.account.reserve(n); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held += n
	return nil
}

func (h *holding) release(n int) {
	h.account.release(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held -= n
}

// close releases all that the connection holds.
func (h *holding) close() {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	h.release(held)
}
