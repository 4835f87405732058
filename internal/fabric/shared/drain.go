package shared

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// byteDrain and byteRing are the only bytes that are valid on the socket after the handshake.
// byteDrain: the sender drains the connection.
const byteDrain = 'D'

// Draining returns a channel that is closed when the peer drains this connection, or the connection
// has ended. Calls in flight continue, and a call that begins nevertheless is served.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Drain asks the peer to make its next calls on another connection. Calls in flight continue
// both ways; the peer closes the connection when it has no calls left. It does not block.
func (c *Conn) Drain() {
	c.drainOnce.Do(func() {
		// A peer that has stopped may have left the socket full: it reads the byte when it goes on.
		c.spawn(func() { _, _ = c.socket.Write([]byte{byteDrain}) })
	})
}

// Finish refuses new calls to the peer, and waits until the calls in flight have ended or ctx is
// done. Refused calls fail with [ErrFinished]. The connection and the peer's calls continue.
func (c *Conn) Finish(ctx context.Context) error {
	select {
	case <-c.caller.refuseCalls():
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refuseCalls refuses new calls; the channel is closed when the last call has ended.
func (c *caller) refuseCalls() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
		c.closeIfIdle()
	}
	return c.idle
}

// endCall counts a call as ended: its caller has received the end, or abandoned the call.
func (c *caller) endCall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.closeIfIdle()
}

// closeIfIdle closes idle after the last call; the mutex is held.
func (c *caller) closeIfIdle() {
	if c.idle != nil && c.active == 0 {
		close(c.idle)
	}
}

// ErrFinished is the error of calls on a drained connection. The peer never saw them: they can
// be sent on another connection.
var ErrFinished error = finished{}

type finished struct{}

func (finished) Error() string { return "this connection takes no more calls" }

// GRPCStatus implements the interface of package status.
func (f finished) GRPCStatus() *status.Status { return status.New(codes.Unavailable, f.Error()) }

// Unsent reports that the callee never saw the call.
func (finished) Unsent() bool { return true }

// An unsentError is the error of a call that could not begin because its connection has ended: the
// peer never saw the call.
type unsentError struct{ error }

// GRPCStatus implements the interface of package status.
func (u unsentError) GRPCStatus() *status.Status { return status.Convert(u.error) }

// Unsent reports that the callee never saw the call.
func (unsentError) Unsent() bool { return true }

func (u unsentError) Unwrap() error { return u.error }

// freeIfSent frees the request of a call that failed, unless the call can be sent on another
// connection.
func freeIfSent(request *call.Message, err error) {
	var u interface{ Unsent() bool }
	if !errors.As(err, &u) {
		request.Free()
	}
}

// refusalError returns why no call may begin on a connection that has ended.
func (c *Conn) refusalError() error {
	c.caller.mu.Lock()
	finished := c.caller.idle != nil
	c.caller.mu.Unlock()
	if finished {
		return ErrFinished
	}
	return unsentError{c.reason()}
}

// handleSocketByte processes a byte that the peer wrote to the socket. It returns false if the byte
// is a violation.
func (c *Conn) handleSocketByte(word byte) bool {
	switch word {
	case byteDrain:
		c.drainedOnce.Do(func() { close(c.draining) })
	case byteRing:
		c.caller.ringParked()
		c.callee.ringParked()
	default:
		c.closeOnViolation(outboard.Errorf(outboard.Protocol, "socket", "the peer wrote %#x after the handshake", word))
		return false
	}
	return true
}
