package shared

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
)

// wordDrain is the one word that may be on the socket after the handshake: its
// sender wants no more calls on this connection.
const wordDrain = 'D'

// Draining is closed when the peer has asked for no more calls on this
// connection, or the connection has ended. Calls that have begun go on, and a call
// that begins all the same is served.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Drain asks the peer to make its next calls on another connection. Calls go on,
// both ways; the peer ends the connection when it needs it no more.
func (c *Conn) Drain() {
	c.drainOnce.Do(func() {
		// A peer that does not take one byte is gone, or has other worries: it keeps
		// the connection.
		_, _ = c.socket.Write([]byte{wordDrain})
	})
}

// Finish begins no more calls to the peer, and waits until those that have begun
// are over or ctx ends. Calls that come too late fail with [ErrFinished]. The
// connection stays; the peer's calls go on.
func (c *Conn) Finish(ctx context.Context) error {
	select {
	case <-c.caller.shut():
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shut lets no more calls begin; the channel is closed when the last is over.
func (c *caller) shut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet == nil {
		c.quiet = make(chan struct{})
		c.hush()
	}
	return c.quiet
}

// part counts a call as over: its caller has read all of it, or wants no more.
func (c *caller) part() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun--
	c.hush()
}

// hush says that no call is left, once none is; the mutex is held.
func (c *caller) hush() {
	if c.quiet != nil && c.begun == 0 {
		close(c.quiet)
	}
}

// ErrFinished is for calls on a connection that takes no more. The peer never
// heard of them: they can be made on another one.
var ErrFinished error = finished{}

type finished struct{}

func (finished) Error() string { return "this connection takes no more calls" }

// GRPCStatus is how the package status sees it.
func (f finished) GRPCStatus() *status.Status { return status.New(codes.Unavailable, f.Error()) }

// Unsent says that the callee never saw the call.
func (finished) Unsent() bool { return true }

// refusal is why no call begins on a connection that has ended.
func (c *Conn) refusal() error {
	c.caller.mu.Lock()
	finished := c.caller.quiet != nil
	c.caller.mu.Unlock()
	if finished {
		return ErrFinished
	}
	return c.reason()
}

// heed treats what the peer wrote on the socket.
func (c *Conn) heed(word byte) bool {
	if word != wordDrain {
		c.broke(outboard.Errorf(outboard.Protocol, "socket", "the peer wrote %#x after the handshake", word))
		return false
	}
	c.drainedOnce.Do(func() { close(c.draining) })
	return true
}
