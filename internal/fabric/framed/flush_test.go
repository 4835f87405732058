package framed

import (
	"net"
	"testing"
	"time"
)

// halfOpen is a connection to a peer that reads nothing.
func halfOpen(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	a, b := tcp(t)
	t.Cleanup(func() { b.Close() })
	c := Client(a, Options{DeadAfter: time.Hour})
	t.Cleanup(func() { c.fail(ErrClosed); c.loops.Wait() })
	if err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Preface and first ping.
	if _, err := b.Read(make([]byte, 2*headerSize+8)); err != nil {
		t.Fatal(err)
	}
	for c.out.queue.hasUnclaimed() {
		c.out.flush()
	}
	return c, b
}

func (c *Conn) pushPong(t *testing.T) {
	t.Helper()
	if err := c.out.queue.push(func(b []byte) []byte { return appendPing(b, framePong, 7) }, false); err != nil {
		t.Fatal(err)
	}
}

func (c *Conn) queued() int {
	c.out.queue.mu.Lock()
	defer c.out.queue.mu.Unlock()
	return len(c.out.queue.pending)
}

// fill writes until the operating system takes no more.
func fill(t *testing.T, c *Conn) {
	t.Helper()
	for b := make([]byte, 1<<20); ; {
		_ = c.socket.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.socket.Conn.Write(b); err != nil {
			break
		}
	}
	_ = c.socket.SetWriteDeadline(time.Time{})
}

// The reader that asks for more of a long frame writes what is queued itself, unless it
// would have to wait for that.
func TestFlushMeanwhile(t *testing.T) {
	if c, _ := halfOpen(t); !c.socket.writable() {
		t.Skip("this system does not say whether a write would wait")
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, c *Conn)
		wrote  bool
	}{
		"nothing in the way":     {func(*testing.T, *Conn) {}, true},
		"somebody else writes":   {func(_ *testing.T, c *Conn) { c.out.lock.lock(urgent) }, false},
		"the peer does not read": {fill, false},
	} {
		t.Run(name, func(t *testing.T) {
			// The flush loop, which a new connection wakes, may be about to write the same frame:
			// then another connection has to show it.
			wrote := false
			for n := 0; n < 100 && !wrote; n++ {
				wrote = flushesBeforeRead(t, test.before, name == "somebody else writes")
				if !test.wrote {
					break
				}
			}
			if test.wrote && !wrote {
				t.Error("it is left to others")
			}
		})
	}
}

// flushesBeforeRead reports whether the reader of a new connection writes a frame.
func flushesBeforeRead(t *testing.T, before func(*testing.T, *Conn), locked bool) (wrote bool) {
	t.Helper()
	c, _ := halfOpen(t)
	before(t, c)
	c.pushPong(t)
	done := make(chan bool)
	go func() {
		c.out.flushBeforeRead()
		done <- c.queued() == 0
	}()
	select {
	case wrote = <-done:
	case <-time.After(2 * time.Minute):
		t.Error("the reader waits")
	}
	if locked {
		c.out.lock.unlock()
	}
	return wrote
}
