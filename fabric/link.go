package fabric

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errClosing is grpc-go's status for calls on a closed connection.
var errClosing = status.Error(codes.Canceled, "grpc: the client connection is closing")

// redial opens the link when a call needs it, and a new link after its end.
type redial struct {
	dial     func(context.Context) (*link, error)
	backoff  backoff
	ctx      context.Context //nolint:containedctx // the life of the attempts, which outlive the calls that want them
	stop     context.CancelFunc
	attempts sync.WaitGroup

	mu       sync.Mutex
	current  *link
	attempt  chan struct{} // closed when the attempt under way is over; nil: there is none
	failure  error         // of the last attempt
	failures int
	next     time.Time // when the next attempt may begin
	closed   bool
}

func newRedial(dial func(context.Context) (*link, error), b backoff) *redial {
	r := &redial{dial: dial, backoff: b}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *redial) link(ctx context.Context, wait bool) (*link, error) {
	for tried := false; ; tried = true {
		l, attempt, err := r.currentOrAttempt(wait, tried)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-attempt:
		case <-ctx.Done():
			return nil, r.contextError(ctx)
		}
	}
}

// currentOrAttempt returns the link, or a channel that is closed when there may be one. Calls that
// do not wait get the last failure, until the next attempt begins.
func (r *redial) currentOrAttempt(wait, tried bool) (*link, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failing := r.failure != nil && (tried || r.attempt != nil || time.Now().Before(r.next))
	switch {
	case r.closed:
		return nil, nil, errClosing
	case r.current != nil && !r.current.over():
		return r.current, nil, nil
	case failing && !wait:
		return nil, nil, r.failure
	case r.attempt == nil:
		r.startAttempt()
	}
	return nil, r.attempt, nil
}

// startAttempt starts an attempt; the caller holds mu.
func (r *redial) startAttempt() {
	done := make(chan struct{})
	pause := time.Until(r.next)
	r.attempt, r.current = done, nil
	r.attempts.Go(func() {
		defer close(done)
		r.sleep(pause)
		r.attemptDone(r.attemptOnce())
	})
}

// attemptOnce makes one attempt.
func (r *redial) attemptOnce() (*link, error) {
	r.mu.Lock()
	r.failure = nil
	r.mu.Unlock()
	return r.dial(r.ctx)
}

func (r *redial) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// attemptDone records the result of an attempt.
func (r *redial) attemptDone(l *link, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempt = nil
	if err != nil {
		r.recordFailure(err)
		return
	}
	if r.closed {
		_ = l.transport.Close()
		return
	}
	r.current, r.failures, r.next = l, 0, time.Time{}
	r.attempts.Go(func() { r.watchLink(l) })
}

// watchLink waits until a link takes no more calls, lets its calls end, and closes it.
func (r *redial) watchLink(l *link) {
	select {
	case <-l.done:
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	if r.current == l {
		r.current = nil
	}
	r.mu.Unlock()
	r.drainLink(l)
	_ = l.transport.Close()
}

// drainLink waits until a link has no calls, and moves the movable streams to the next link.
func (r *redial) drainLink(l *link) {
	f, ok := l.transport.(drainer)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(r.ctx)
	var moving sync.WaitGroup
	defer moving.Wait()
	defer stop()
	if l.movable {
		moving.Go(func() { l.streams.Move(ctx) })
	}
	// An error means that the attempts are over, which ends every call.
	_ = f.Finish(r.ctx)
}

// A drainer is a transport that can wait for the end of its calls.
type drainer interface {
	// Finish admits no more calls, and waits for the calls in flight.
	Finish(ctx context.Context) error
}

func (r *redial) recordFailure(err error) {
	r.failure = status.Errorf(codes.Unavailable, "connection error: desc = %q", err)
	r.failures++
	r.next = time.Now().Add(r.backoff.wait(r.failures))
}

// contextError returns the status of a call that ended before there was a link.
func (r *redial) contextError(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := status.FromContextError(ctx.Err())
	if r.failure == nil {
		return s.Err()
	}
	return status.Errorf(s.Code(), "%s while waiting for connections to become ready; last error: %v", s.Message(), r.failure)
}

// Close ends the link and the attempts.
func (r *redial) Close() error {
	r.mu.Lock()
	r.closed = true
	r.current = nil
	r.mu.Unlock()
	r.stop()
	r.attempts.Wait()
	return nil
}
