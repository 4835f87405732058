package remote

import (
	"context"
	"io"

	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// Draining returns a channel that is closed when the peer has asked for no more calls on this
// connection, or the connection has ended. Calls that have begun continue.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Drain asks the peer to open no more calls here, and waits until the calls that it has opened have
// ended. The connection stays open; calls to the peer continue.
func (c *Conn) Drain(ctx context.Context) error {
	s, err := c.framed.Open(ctx, drainMethod, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset(nil) })
	defer stop()
	_ = s.CloseWrite()
	if _, err := io.Copy(io.Discard, s); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	for c.peerCalls.Load() > 0 {
		select {
		case <-c.peerIdle:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Done():
			return c.Err()
		}
	}
	return nil
}

// finishing is added to Conn.ownCalls by Finish.
const finishing = 1 << 30

// Finish refuses new calls to the peer, and waits until the calls that have begun have ended or ctx
// ends. Refused calls fail with an error whose method Unsent reports that the peer never saw them.
// The connection stays open; the peer's calls continue.
func (c *Conn) Finish(ctx context.Context) error {
	c.finishOnce.Do(func() {
		if c.ownCalls.Add(finishing) == finishing {
			c.idleOnce.Do(func() { close(c.idle) })
		}
	})
	select {
	case <-c.idle:
		return nil
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginCall counts a call to the peer, unless the connection drains or has too many calls.
func (c *Conn) beginCall(service string) error {
	if c.ownCalls.Add(1) >= finishing {
		c.uncountCall()
		return errDraining
	}
	if err := c.services.acquire(service); err != nil {
		c.uncountCall()
		return err
	}
	return nil
}

// endCall counts a call to the peer as ended.
func (c *Conn) endCall(service string) {
	c.services.end(service)
	c.uncountCall()
}

func (c *Conn) uncountCall() {
	if c.ownCalls.Add(-1) == finishing {
		c.idleOnce.Do(func() { close(c.idle) })
	}
}

// acceptDrain accepts the peer's request to drain. The answer, the end of the stream, tells the
// peer that this side sends no OPEN after it.
func (c *Conn) acceptDrain(s *framed.Stream, _ []byte) (framed.Receiver, error) {
	return &drain{conn: c, stream: s}, nil
}

// drain receives the stream by which the peer requests the drain.
type drain struct {
	conn   *Conn
	stream *framed.Stream
}

// Buffer implements framed.Receiver. No bytes are expected.
func (*drain) Buffer(int) []byte { return nil }

// Filled implements framed.Receiver.
func (*drain) Filled(int) int { return 0 }

// Ended implements framed.Receiver.
func (d *drain) Ended() (work bool) {
	// In this order: a call that is refused finds that the connection drains.
	d.conn.drainingOnce.Do(func() { close(d.conn.draining) })
	d.conn.drained.Store(true)
	return true
}

// Work implements framed.Receiver.
func (d *drain) Work() { _ = d.stream.Close() }

// Failed implements framed.Receiver.
func (*drain) Failed(error) {}
