package shared

import "time"

// The reader of a callee's ring serves unary calls itself as long as they come one at a time:
// passing the reader's role on for every call costs a thread switch, which is most of the cost of a
// short call. A watcher passes the role on when a handler takes long. After calls were seen to wait
// behind a handler, the role is passed on before the next calls.
const (
	// watchInterval is the period of the watcher: a call behind a blocking handler waits at most
	// twice as long.
	watchInterval = 200 * time.Microsecond
	// maxIdleTicks is the number of periods without a call after which the watcher ends.
	maxIdleTicks = 100
	// eagerCalls is the number of calls before which the role is passed on, after calls were seen
	// to wait.
	eagerCalls = 256
)

// A readerRole records which goroutine reads. The callee's mutex guards all fields except eager,
// which belongs to the reader while it is in no handler.
type readerRole struct {
	lent     bool   // the reader runs a handler and is still the reader
	calls    uint64 // calls that the reader has served
	watching bool   // the watcher runs
	eager    int
}

// lendRole decides whether the reader serves s without passing its role on.
func (c *callee) lendRole(s *served) bool {
	if !s.single || c.readerRole.eager > 0 || c.in.waiting() {
		c.readerRole.eager = max(0, c.readerRole.eager-1)
		return false
	}
	c.in.publish()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeErr != nil {
		return false
	}
	c.readerRole.lent = true
	c.readerRole.calls++
	if !c.readerRole.watching {
		c.readerRole.watching = true
		c.conn.spawn(c.watchRole)
	}
	return true
}

// reclaimRole ends the state that lendRole began. It reports whether this goroutine is still the
// reader.
func (c *callee) reclaimRole() bool {
	c.mu.Lock()
	still := c.readerRole.lent
	c.readerRole.lent = false
	c.mu.Unlock()
	return still
}

// detectWaiting records whether calls arrived while a handler ran. It runs before the response is
// sent, since the caller may call again at once. The mutex is held.
func (c *callee) detectWaiting() {
	// While the reader runs a handler its position does not change.
	if c.readerRole.lent && c.in.waiting() {
		c.readerRole.eager = eagerCalls
	}
}

// watchRole passes the role on when the same call holds it for two periods.
func (c *callee) watchRole() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	seen, idle := uint64(0), 0
	for idle < maxIdleTicks {
		select {
		case <-tick.C:
		case <-c.conn.done:
			return
		}
		c.mu.Lock()
		switch {
		case c.readerRole.calls != seen:
			seen, idle = c.readerRole.calls, 0
		case c.readerRole.lent:
			c.readerRole.lent = false
			c.passRoleLocked()
		default:
			idle++
		}
		if idle == maxIdleTicks {
			c.readerRole.watching = false
		}
		c.mu.Unlock()
	}
}
