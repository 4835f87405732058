package remote

import (
	"context"
	"io"

	"github.com/outboard-run/outboard/fabric/framed"
)

// Draining is closed when the peer has asked for no more calls on this
// connection, or the connection has ended. Calls that have begun go on.
func (c *Conn) Draining() <-chan struct{} { return c.draining }

// Drain asks the peer to open no more calls here, and waits until those that it
// has opened are over. The connection stays; calls to the peer go on.
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
	for c.running.Load() > 0 {
		select {
		case <-c.quiet:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Done():
			return c.Err()
		}
	}
	return nil
}

// Finish waits until the calls to the peer that have begun are over, or ctx ends.
// It is for a connection on which nobody begins calls any more, because the peer
// wants none: [Conn.Draining].
func (c *Conn) Finish(ctx context.Context) error {
	for c.made.Load() > 0 {
		select {
		case <-c.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Done():
			return nil
		}
	}
	return nil
}

// ended counts a call to the peer as over.
func (c *Conn) ended() {
	if c.made.Add(-1) == 0 {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// acceptDrain is the peer's wish. Its answer, the end of the stream, says that no OPEN
// of ours comes after it.
func (c *Conn) acceptDrain(s *framed.Stream, _ []byte) (framed.Receiver, error) {
	return &drain{conn: c, stream: s}, nil
}

// drain is the stream of a peer that wants no more calls.
type drain struct {
	conn   *Conn
	stream *framed.Stream
}

// Room implements framed.Receiver. Nothing is expected.
func (*drain) Room(int) []byte { return nil }

// Filled implements framed.Receiver.
func (*drain) Filled(int) int { return 0 }

// Ended implements framed.Receiver.
func (d *drain) Ended() (work bool) {
	d.conn.drained.Store(true)
	d.conn.drainingOnce.Do(func() { close(d.conn.draining) })
	return true
}

// Work implements framed.Receiver.
func (d *drain) Work() { _ = d.stream.Close() }

// Failed implements framed.Receiver.
func (*drain) Failed(error) {}
