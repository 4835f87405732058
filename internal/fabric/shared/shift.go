package shared

import "time"

// The reader of a callee's ring serves a call of one message itself, as long as it
// seems to be the only one: to make another goroutine the reader for each call
// costs a switch between threads, which is most of what a short call costs. A
// goroutine beside it, the shift, gives the role to another when a handler takes
// long. Where calls are seen to wait for each other, the next ones have readers of
// their own at once.
const (
	// shiftEvery is how often the shift looks: a call that comes beside a handler
	// that blocks waits for twice that at most.
	shiftEvery = 200 * time.Microsecond
	// shiftIdle is how many looks without a call end the shift.
	shiftIdle = 100
	// spread is for how many calls the role is passed on at once after some were
	// seen to wait.
	spread = 256
)

// A shift is what decides who reads. All fields are under the callee's mutex, but
// spread, which is the reader's while it is in no handler.
type shift struct {
	lent    bool   // the reader is in a handler, and still the reader
	turn    uint64 // counts such calls
	running bool   // the goroutine
	spread  int
}

// keep says that the reader serves s without passing its role on.
func (c *callee) keep(s *served) bool {
	if !s.single || c.shift.spread > 0 || c.in.waiting() {
		c.shift.spread = max(0, c.shift.spread-1)
		return false
	}
	c.in.tell()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return false
	}
	c.shift.lent = true
	c.shift.turn++
	if !c.shift.running {
		c.shift.running = true
		c.conn.spawn(c.watchShift)
	}
	return true
}

// kept ends what keep began, and says whether this goroutine is the reader still.
func (c *callee) kept() bool {
	c.mu.Lock()
	still := c.shift.lent
	c.shift.lent = false
	c.mu.Unlock()
	return still
}

// notice looks whether calls came while a handler ran. It is asked before the call is
// answered: who is answered calls again at once. The mutex is held.
func (c *callee) notice() {
	// While the reader is in a handler nobody moves its position.
	if c.shift.lent && c.in.waiting() {
		c.shift.spread = spread
	}
}

// watchShift passes the role on when one call has it at two looks.
func (c *callee) watchShift() {
	tick := time.NewTicker(shiftEvery)
	defer tick.Stop()
	seen, idle := uint64(0), 0
	for idle < shiftIdle {
		select {
		case <-tick.C:
		case <-c.conn.done:
			return
		}
		c.mu.Lock()
		switch {
		case c.shift.turn != seen:
			seen, idle = c.shift.turn, 0
		case c.shift.lent:
			c.shift.lent = false
			c.passLocked()
		default:
			idle++
		}
		if idle == shiftIdle {
			c.shift.running = false
		}
		c.mu.Unlock()
	}
}
