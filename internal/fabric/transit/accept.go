package transit

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var (
	errUnknown = status.Error(codes.Unavailable, "no stream of that name is served here")
	errBusy    = status.Error(codes.Unavailable, "the stream is moving already")
	errStale   = status.Error(codes.FailedPrecondition, "the stream has moved since")
)

// accept makes l the stream's next leg, and notifies the caller.
func (c *callee) accept(l *inbound, at position) error {
	l.switched = make(chan struct{})
	if err := c.reserveNext(l, at); err != nil {
		return err
	}
	c.watch(l)
	if err := c.sendAccepted(l); err != nil {
		// The caller has not received the acceptance, and stays on the old leg.
		c.dropNext(l)
		return err
	}
	return nil
}

// reserveNext makes l the next leg, unless the stream has ended, is moving, or l is stale.
func (c *callee) reserveNext(l *inbound, at position) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return errUnknown
	case c.next != nil:
		return errBusy
	case !at.after(c.pos):
		return errStale
	}
	c.next = l
	return nil
}

func (c *callee) dropNext(l *inbound) {
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	l.unhook()
	close(l.switched)
}

// sendAccepted notifies the caller that the leg is accepted. If the handler has not sent its
// header, the callee sends on the new leg at once: there is no message to overtake.
func (c *callee) sendAccepted(l *inbound) error {
	c.headerMu.Lock()
	defer c.headerMu.Unlock()
	if c.headerSent.Load() {
		return l.SendHeader(metadata.MD{MoveKey: {accepted}})
	}
	if err := l.SendHeader(metadata.MD{MoveKey: {acceptedInBand}}); err != nil {
		return err
	}
	l.headerInBand = true
	c.out.Store(l)
	return nil
}

// switchTo sends on the new leg, reads the old one to its end, and ends it.
func (c *callee) switchTo(l *inbound, at position) {
	// A message in flight arrives, since the caller reads the old leg to its end.
	c.sending.Lock()
	c.out.Store(l)
	c.sending.Unlock()
	close(l.switched)
	c.mu.Lock()
	old := c.current
	c.mu.Unlock()
	// A leg that fails now ends the stream, whether its caller has received the acceptance or
	// still waits on the old leg.
	stop := context.AfterFunc(l.Context(), old.end)
	for c.drainOne(old, c.enqueue, c.advance) {
	}
	stop()
	c.mu.Lock()
	if !c.ended {
		c.current, c.next, c.pos = l, nil, at
	}
	c.mu.Unlock()
	old.end()
}

// end ends a leg whose stream continues on another leg.
func (l *inbound) end() {
	l.once.Do(func() {
		l.unhook()
		l.SetTrailer(metadata.MD{MoveKey: {moved}})
		close(l.done)
	})
}

// finish ends the stream with the handler's error.
func (c *callee) finish(err error) {
	c.mu.Lock()
	c.ended = true
	next, trailer := c.next, c.trailer
	c.mu.Unlock()
	if next != nil {
		<-next.switched // the goroutine that reads the old leg ends it
	}
	last := c.out.Load()
	last.once.Do(func() {
		last.unhook()
		last.SetTrailer(trailer)
		last.err = err
		close(last.done)
	})
	c.cancel()
}
