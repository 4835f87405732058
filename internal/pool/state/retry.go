package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

const (
	attemptTimeout = 2 * time.Second
	retryPause     = 100 * time.Millisecond
	// appearTime is how long a server may take to learn of a stream that another server has
	// created. A stream that is not found for longer does not exist.
	appearTime = 10 * time.Second
)

// attempts are the attempts in flight. They are cancelled when the connection is lost, since
// their answers are lost with it.
type attempts struct {
	mu  sync.Mutex
	all map[*attempt]context.CancelFunc
}

type attempt struct{ _ byte }

func (a *attempts) add(cancel context.CancelFunc) *attempt {
	added := new(attempt)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[*attempt]context.CancelFunc)
	}
	a.all[added] = cancel
	return added
}

func (a *attempts) remove(ended *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, ended)
}

// cancelAll ends all attempts.
func (a *attempts) cancelAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.all {
		cancel()
	}
}

// retry calls f, with a time limit for each attempt, until it succeeds, fails permanently or
// ctx ends. Servers that elect a leader answer nothing or "unavailable" for some seconds.
func (c *client) retry(ctx context.Context, f func(context.Context) error) error {
	return c.retryEach(ctx, attemptTimeout, f)
}

func (c *client) retryEach(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	var missing time.Time // since when there is no such stream
	for {
		if c.givesUp() {
			return unreachable("the pool's state", errGivenUp)
		}
		err := c.attemptOnce(ctx, limit, f)
		switch {
		case err == nil:
			return nil
		case reasonOf(ctx) != nil:
			return reasonOf(ctx)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if missing.IsZero() {
				missing = time.Now()
			}
			if time.Since(missing) >= appearTime {
				return &outboard.Error{Kind: outboard.NotFound, Err: err}
			}
		case !isRetryable(err) && (!errors.Is(err, context.Canceled) || ctx.Err() != nil):
			return err
		default:
			missing = time.Time{}
		}
		if c.unable != nil && c.stopping.Load() {
			if reason := c.unable(); reason != nil {
				return unreachable("the pool's state", fmt.Errorf("%w (last: %w)", reason, err))
			}
		}
		if sleep(ctx, retryPause) != nil {
			if reason := reasonOf(ctx); reason != nil {
				return reason
			}
			return unreachable("the pool's state", fmt.Errorf("%w (last: %w)", ctx.Err(), err))
		}
	}
}

// reasonOf returns the error for which a context was cancelled, as by WhileAnswered; nil for a context
// that has not ended, or that ended by itself.
func reasonOf(ctx context.Context) error {
	if cause, ok := errors.AsType[*outboard.Error](context.Cause(ctx)); ok {
		return cause
	}
	return nil
}

// errGivenUp ends requests of a stopping node while the state acknowledges no writes.
var errGivenUp = errors.New("it acknowledges no writes, and this node stops")

// givesUp reports whether the node stops and the state has acknowledged no write for
// [writeGrace], as when it has lost its majority.
func (c *client) givesUp() bool { return c.stopping.Load() && c.writes.failing() > writeGrace }

func (c *client) attemptOnce(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if err := c.checkMember(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	attempt := c.attempts.add(cancel)
	defer c.attempts.remove(attempt)
	return f(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// isRetryable reports whether another attempt may succeed.
func isRetryable(err error) bool {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrStaleConnection),
		errors.Is(err, errInProcess), isConnectionError(err):
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.Code == codeUnavailable || api.Code == 408)
}

// isConnectionError reports that the connection ended during a write. The client reconnects.
func isConnectionError(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}
