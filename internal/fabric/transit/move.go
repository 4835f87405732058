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

// move moves a stream out of a set. It returns when the stream has moved or can't, or ctx has
// ended.
func (c *Caller) move(ctx context.Context, from *StreamSet) {
	wait := minPause
	for c.mayMove(from) {
		next, set, err := c.attempt()
		switch {
		case err == nil:
			c.switchTo(next, set)
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

// mayMove reports whether the stream has not ended and is still in the set.
func (c *Caller) mayMove(set *StreamSet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended && c.set == set
}

// isPermanent reports whether another attempt would fail with the same error.
func isPermanent(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // the other codes are transient
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

// attempt opens another leg, and waits until the callee has accepted it. The callee relies on
// a leg that it has accepted, so only the end of the stream cancels the attempt.
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
	next, set, err := c.open(ctx, at, true)
	if err == nil {
		if err = next.awaitAccepted(!c.forwardingMove); err != nil {
			next.cancel()
		}
	}
	if err != nil {
		c.decide(nil, position{}, nil)
		return nil, nil, err
	}
	c.decide(next, at, set)
	return next, set, nil
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
	last := len(c.pos.path) - 1
	at := position{c.pos.name, slices.Clone(c.pos.path)}
	at.path[last]++
	return ctx, at, true
}

// decide records the outcome of a move: the new leg with its position, or nil after a failure.
func (c *Caller) decide(next *leg, at position, set *StreamSet) {
	c.mu.Lock()
	old, abandon := c.set, c.abandon
	close(c.decided)
	c.decided, c.abandon = nil, nil
	if next != nil {
		c.next, c.pos = next, at
		// The leg lives as long as the stream, not only as long as the attempt.
		cancel := next.cancel
		next.cancel = func() { cancel(); abandon() }
		if !c.ended {
			c.set = set
		}
	}
	c.mu.Unlock()
	if next == nil {
		abandon()
		return
	}
	old.remove(c)
}

// awaitAccepted waits for the callee's answer. decodes reports whether this process decodes a
// header that is sent in band; otherwise it forwards the header.
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
		err = status.Error(codes.FailedPrecondition, "the callee cannot move streams")
	}
	return err
}

// switchTo sends on the next leg from now on, and queues the messages of the old one.
func (c *Caller) switchTo(next *leg, set *StreamSet) {
	c.sending.Lock()
	old := c.out
	_ = old.close() // its reader receives the error
	c.out = next
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		_ = next.close()
	}
	c.sending.Unlock()
	for c.drainOne(old, c.storeDrained, c.advance) {
	}
	c.join(set)
}

// storeDrained queues a message of a leg that the stream leaves, or decodes the header from it.
func (c *Caller) storeDrained(m *call.Message) bool {
	if c.in.headerInBand {
		return c.decodeHeader(m)
	}
	return c.enqueue(m)
}
