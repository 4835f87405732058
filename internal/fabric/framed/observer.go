package framed

import (
	"errors"
	"time"

	"github.com/outboard-run/outboard"
)

// An Observer counts events of connections; package connmetrics has one for Prometheus.
// Connections call its methods concurrently and wait for them: they must return at once.
type Observer interface {
	ConnOpened(c *Conn)
	// ConnClosed is called once for each ConnOpened. The end is "closed" after a
	// shutdown in good order, "refused" after a failed handshake, otherwise the kind
	// of the error.
	ConnClosed(c *Conn, end string)
	// StreamOpened is called for each stream; local reports that this side opened it.
	StreamOpened(local bool)
	RoundTrip(d time.Duration)
	// BytesSent and BytesReceived count the bytes on the wire, encryption included.
	BytesSent(n int)
	BytesReceived(n int)
}

// noObserver is the Observer of connections without one.
type noObserver struct{}

func (noObserver) ConnOpened(*Conn)         {}
func (noObserver) ConnClosed(*Conn, string) {}
func (noObserver) StreamOpened(bool)        {}
func (noObserver) RoundTrip(time.Duration)  {}
func (noObserver) BytesSent(int)            {}
func (noObserver) BytesReceived(int)        {}

// endOf classifies why a connection ended; handshaken reports that its handshake was over.
func endOf(err error, handshaken bool) string {
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, errPeerClosed):
		return "closed"
	case !handshaken:
		return "refused"
	}
	return outboard.KindOf(err).String()
}

// OpenStreams returns the number of open streams, of both sides.
func (c *Conn) OpenStreams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}
