package transit

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// The pauses between attempts to move.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// move moves a stream away from a fleet. It returns when that is done, or can't be, or
// ctx has ended.
func (c *Caller) move(ctx context.Context, from *StreamSet) {
	wait := minPause
	for c.mayMove(from) {
		next, fleet, err := c.attempt()
		switch {
		case err == nil:
			c.switchTo(next, fleet)
			return
		case isPermanent(err) || ctx.Err() != nil:
			return
		}
		if !sleep(ctx, c.ctx, wait) {
			return
		}
		wait = min(2*wait, maxPause)
	}
}

// mayMove says that the stream goes on and is still of that fleet.
func (c *Caller) mayMove(f *StreamSet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended && c.set == f
}

// isPermanent says that another attempt would end in the same way.
func isPermanent(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // the others may pass
	case codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.InvalidArgument:
		return true
	}
	return false
}

func sleep(a, b context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.Done():
	case <-b.Done():
	}
	return false
}

// attempt opens another leg, and waits until the callee has accepted it. From then on
// the callee counts on it, so this does not give up before the stream ends.
func (c *Caller) attempt() (*leg, *StreamSet, error) {
	if c.forwardingMove {
		// Only a leg that was accepted can be followed by another.
		if _, err := c.first.Header(); err != nil {
			return nil, nil, status.Error(codes.FailedPrecondition, "the leg was refused")
		}
	}
	ctx, at, ok := c.startMove()
	if !ok {
		return nil, nil, status.Error(codes.FailedPrecondition, "the stream is over")
	}
	next, fleet, err := c.open(ctx, at, true)
	if err == nil {
		if err = next.awaitAccepted(!c.forwardingMove); err != nil {
			next.cancel()
		}
	}
	if err != nil {
		c.decide(nil, position{}, nil)
		return nil, nil, err
	}
	c.decide(next, at, fleet)
	return next, fleet, nil
}

// startMove marks a move as in progress, and returns the position of the next leg.
func (c *Caller) startMove() (context.Context, position, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, position{}, false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.abandon, c.decided = cancel, make(chan struct{})
	last := len(c.place.path) - 1
	at := position{c.place.name, slices.Clone(c.place.path)}
	at.path[last]++
	return ctx, at, true
}

// decide says what the move has come to.
func (c *Caller) decide(next *leg, at position, fleet *StreamSet) {
	c.mu.Lock()
	old, abandon := c.set, c.abandon
	close(c.decided)
	c.decided, c.abandon = nil, nil
	if next != nil {
		c.next, c.place = next, at
		// The leg lives as long as the stream, not as the attempt.
		cancel := next.cancel
		next.cancel = func() { cancel(); abandon() }
		if !c.ended {
			c.set = fleet
		}
	}
	c.mu.Unlock()
	if next == nil {
		abandon()
		return
	}
	old.remove(c)
}

// awaitAccepted waits for the callee's answer. decodes: a late header is ours to read.
func (l *leg) awaitAccepted(decodes bool) error {
	header, err := l.Header()
	switch {
	case err != nil:
		return err
	case slices.Contains(header[MoveKey], accepted):
		return nil
	case HeaderInBand(header):
		l.headerInBand = decodes
		return nil
	}
	m, err := l.Recv()
	if err == nil {
		m.Free()
		err = status.Error(codes.FailedPrecondition, "the callee does not know how to move")
	}
	return err
}

// switchTo sends by the next leg from now on, and brings in what the old one holds.
func (c *Caller) switchTo(next *leg, fleet *StreamSet) {
	c.sending.Lock()
	old := c.out
	_ = old.close() // what goes wrong is the reader's to learn
	c.out = next
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		_ = next.close()
	}
	c.sending.Unlock()
	for c.drainOne(old, c.keep, c.advance) {
	}
	c.join(fleet)
}

// keep queues a message of a leg that the stream leaves, or reads the header out of it.
func (c *Caller) keep(m *call.Message) bool {
	if c.in.headerInBand {
		return c.decodeHeader(m)
	}
	return c.enqueue(m)
}
