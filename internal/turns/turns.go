// Package turns bounds how many goroutines of one tenant a process has ready to run at a time, so
// that a request of one tenant does not wait behind all requests of another.
//
// Go's scheduler runs goroutines in the order in which they became ready. A process that forwards
// the requests of 64 busy connections of one tenant handles all 64 before a request of another
// tenant, and once more before its response. Here the reader of a connection that has received data
// waits for a turn of the connection's tenant. The readers that wait cost other tenants a system
// call each, and among those that have a turn the scheduler's order serves the tenants one after the
// other, as in fair queueing with a queue for each tenant (Nagle, RFC 970).
package turns

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// patience is how long a turn lasts at most. By then its reader probably waits for something other
// than a processor, such as a client that does not read.
const patience = 250 * time.Microsecond

// A Group has an account for each tenant. Its methods may be called at the same time.
type Group struct {
	limit    int // turns of an account at a time
	mu       sync.Mutex
	accounts map[string]*account
}

// NewGroup creates a group whose accounts have as many turns at a time as there are processors.
func NewGroup() *Group {
	return &Group{limit: runtime.GOMAXPROCS(0), accounts: map[string]*account{}}
}

// Conn returns a connection that belongs to an account until it is closed.
func (g *Group) Conn(conn net.Conn, name string) *Conn {
	c := &Conn{Conn: conn, group: g, turn: make(chan struct{}, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.enter(name)
	return c
}

// Accounts returns how many connections belong to each account.
func (g *Group) Accounts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	conns := make(map[string]int, len(g.accounts))
	for name, a := range g.accounts {
		conns[name] = a.conns
	}
	return conns
}

// Conn is a connection whose reads wait for a turn of its account after they have received data. A
// turn ends with the next read. Only one goroutine reads at a time.
type Conn struct {
	net.Conn
	group *Group
	turn  chan struct{} // capacity 1: a turn that was granted while the reader waited

	// The group's mutex guards these.
	account *account  // nil: it is closed
	waiting bool      // in the account's queue
	granted time.Time // zero: it has no turn
}

// SetAccount has the connection belong to another account.
func (c *Conn) SetAccount(name string) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.account != nil && c.account.name != name {
		c.leave()
		c.enter(name)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.end()
	n, err := c.Conn.Read(b)
	if n > 0 && c.queue() {
		<-c.turn
	}
	return n, err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.group.mu.Lock()
	if c.account != nil {
		c.leave()
	}
	c.group.mu.Unlock()
	return c.Conn.Close()
}

// queue takes a turn, or returns true if the reader must wait for one.
func (c *Conn) queue() (wait bool) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	a := c.account
	if a == nil {
		return false
	}
	if len(a.held) < c.group.limit {
		a.grant(c)
		return false
	}
	a.waiting, c.waiting = append(a.waiting, c), true
	a.watch(c.group)
	return true
}

// end ends the connection's turn, if it has one.
func (c *Conn) end() {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if !c.granted.IsZero() {
		c.account.release(c)
		c.account.fill(c.group.limit)
	}
}

// enter has the connection belong to an account. The caller holds the mutex.
func (c *Conn) enter(name string) {
	a := c.group.accounts[name]
	if a == nil {
		a = &account{name: name}
		c.group.accounts[name] = a
	}
	a.conns++
	c.account = a
}

// leave ends the connection's part in its account, and lets its reader continue. The caller holds
// the mutex.
func (c *Conn) leave() {
	a := c.account
	c.account = nil
	a.release(c)
	if c.waiting {
		c.waiting = false
		c.turn <- struct{}{}
	}
	a.fill(c.group.limit)
	if a.conns--; a.conns == 0 {
		delete(c.group.accounts, a.name)
	}
}

// account has the turns of one tenant.
type account struct {
	name     string
	conns    int     // that belong to it
	held     []*Conn // those with a turn, the oldest turn first
	waiting  []*Conn // in the order of their requests, with some that have left since
	watching bool    // a timer ends turns that last too long
}

// grant gives the connection a turn.
func (a *account) grant(c *Conn) {
	c.granted = time.Now()
	a.held = append(a.held, c)
}

// release ends the connection's turn, if it has one.
func (a *account) release(c *Conn) {
	c.granted = time.Time{}
	if i := slices.Index(a.held, c); i >= 0 {
		a.held = slices.Delete(a.held, i, i+1)
	}
}

// fill grants the free turns to connections that wait.
func (a *account) fill(limit int) {
	for len(a.held) < limit && len(a.waiting) > 0 {
		c := a.waiting[0]
		a.waiting[0], a.waiting = nil, a.waiting[1:]
		if c.waiting && c.account == a {
			c.waiting = false
			a.grant(c)
			c.turn <- struct{}{}
		}
	}
}

// watch ends turns that last too long, for as long as connections wait.
func (a *account) watch(g *Group) {
	if a.watching || len(a.waiting) == 0 || len(a.held) == 0 {
		return
	}
	a.watching = true
	time.AfterFunc(time.Until(a.held[0].granted.Add(patience)), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		a.watching = false
		for now := time.Now(); len(a.held) > 0 && now.Sub(a.held[0].granted) >= patience; {
			a.release(a.held[0])
		}
		a.fill(g.limit)
		a.watch(g)
	})
}
