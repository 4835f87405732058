package router

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// ServeUnary implements call.UnaryHandler.
func (r *Router) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	c := r.startExchange(h)
	c.request = request
	response, end, err := c.unary(ctx)
	c.finish(err)
	return response, end, err
}

// unary executes a unary call.
func (c *exchange) unary(ctx context.Context) (*call.Message, call.End, error) {
	ctx, err := c.applyPolicies(ctx)
	if err != nil {
		return nil, call.End{}, err
	}
	size := len(c.request.Data)
	if err := c.delay(ctx, c.Plan.Delay+c.links(policy.ToServer, size)); err != nil {
		return nil, call.End{}, err
	}
	if len(c.Plan.Mirror) > 0 {
		c.mirror()
	}
	a := c.dispatch(ctx)
	c.endpoint, c.ended = a.endpoint, a.ended
	received := 0
	if a.response != nil {
		received = len(a.response.Data)
	}
	c.method.countBytes(size, received, a.ended)
	return c.answer(ctx, a, received)
}

// dispatch sends the call as planned: hedged, with retries, or once.
func (c *exchange) dispatch(ctx context.Context) answer {
	switch {
	case c.Plan.Hedge != nil && c.Plan.Hedge.Attempts > 1:
		return c.sendHedged(ctx)
	case c.Plan.Retry != nil && c.Plan.Retry.Attempts > 1:
		return c.sendWithRetries(ctx)
	}
	return c.sendOnce(ctx)
}

// answer passes a response through the plan's links and policies.
func (c *exchange) answer(ctx context.Context, a answer, size int) (*call.Message, call.End, error) {
	if len(c.Plan.Links) > 0 {
		c.ended = time.Time{}
		if err := c.delay(ctx, c.links(policy.ToClient, size)); err != nil {
			a.response.Free()
			return nil, call.End{}, err
		}
	}
	if !c.Plan.Rewrites {
		return a.response, a.end, a.err
	}
	var err error
	a.end.Header, a.end.Trailer, err = c.respond(nonNil(a.end.Header), nonNil(a.end.Trailer))
	if err != nil {
		a.response.Free()
		return nil, call.End{}, err
	}
	return a.response, a.end, a.err
}

// nonNil marks metadata as arrived, though it may be empty.
func nonNil(md metadata.MD) metadata.MD {
	if md == nil {
		return metadata.MD{}
	}
	return md
}

// A call that its callee never saw is sent again without a policy (transparent retries of gRFC A6):
// to each endpoint once, since any number of them may be stopping, and then maxRepeats times more.
const (
	maxRepeats       = 3
	maxUnsentRetries = 64
)

// mayRetryUnsent reports whether a call that its callee never saw may be sent again.
func (c *exchange) mayRetryUnsent() bool {
	repeats := 0
	for i, id := range c.tried {
		if slices.Contains(c.tried[:i], id) {
			repeats++
		}
	}
	return repeats < maxRepeats && len(c.tried) <= maxUnsentRetries
}

// sendOnce sends a call without a retry policy. A call that was not sent is retried
// transparently while its request is intact, that is, unless its memory was released with the
// attempt.
func (c *exchange) sendOnce(ctx context.Context) answer {
	request := c.request
	c.request = nil
	again, intact := *request, request.Release == nil
	var backoff readyBackoff
	for {
		a := c.send(ctx, request)
		if a.unsent {
			c.tried = append(c.tried, a.endpoint.id)
		}
		if !a.unsent || a.request == nil && !intact || ctx.Err() != nil || !c.mayRetryUnsent() && !backoff.next(ctx, c) {
			a.request.Free()
			return a
		}
		if request = a.request; request == nil {
			copied := again
			request = &copied
		}
	}
}

// send makes one attempt.
func (c *exchange) send(ctx context.Context, request *call.Message) answer {
	now := c.began
	if c.attempts > 0 || c.Plan.Delay > 0 || len(c.Plan.Links) > 0 {
		now = time.Now()
	}
	c.attempts++
	a := c.router.attempt(ctx, c.Head, request, c.tried, now)
	if a.endpoint != nil && !a.endpoint.forgets {
		c.retainMemory()
	}
	return a
}

// sendWithRetries sends a call until the policy accepts the answer.
func (c *exchange) sendWithRetries(ctx context.Context) answer {
	copier := newSharedMessage(c.request)
	c.request = nil
	defer copier.release()
	var backoff readyBackoff
	for attempt := 1; ; {
		a := c.send(ctx, copier.acquire())
		a.request.Free()
		if a.err == nil || ctx.Err() != nil {
			return a
		}
		if a.endpoint != nil {
			c.tried = append(c.tried, a.endpoint.id)
		}
		switch {
		case a.unsent && (c.mayRetryUnsent() || backoff.next(ctx, c)):
		case c.retries(ctx, attempt, a.err, a.end.Trailer):
			attempt++
		default:
			return a
		}
	}
}

// retries reports whether the policy grants another attempt, after waiting for its back-off.
func (c *exchange) retries(ctx context.Context, attempts int, err error, trailer metadata.MD) bool {
	wait, ok := c.Plan.Retry.Next(&c.Exchange, attempts, err)
	if wait, ok = pushback(trailer, wait, ok); !ok || c.delay(ctx, wait) != nil {
		return false
	}
	c.router.stats.retries.Add(1)
	c.numberAttempt(attempts)
	return true
}

// numberAttempt sets the number of the next attempt in the head.
func (c *exchange) numberAttempt(number int) {
	// The last attempt's callee may still read its head.
	c.Head = c.Head.Clone()
	c.Head.Attempt = number
}

// pushback applies the callee's grpc-retry-pushback-ms trailer: negative prevents a retry,
// otherwise it is the back-off in milliseconds.
func pushback(trailer metadata.MD, wait time.Duration, ok bool) (time.Duration, bool) {
	values := trailer["grpc-retry-pushback-ms"]
	if len(values) == 0 || !ok {
		return wait, ok
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || ms < 0 {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// delay waits, after yielding the lent goroutine.
func (c *exchange) delay(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	c.router.options.Yield(ctx)
	return wait(ctx, d)
}

func wait(ctx context.Context, d time.Duration) error {
	if sleep(ctx, d) {
		return nil
	}
	return status.FromContextError(ctx.Err()).Err()
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// links returns the delay of a message by the plan's links.
func (c *exchange) links(d policy.Direction, size int) time.Duration {
	if len(c.Plan.Links) == 0 {
		return 0
	}
	return linksDelay(c.Plan.Links, d, size, time.Now(), c.router.options.Random)
}

// linksDelay returns the delay of a message that passes one link after the other.
func linksDelay(links []*policy.Link, d policy.Direction, size int, now time.Time, random func() uint64) time.Duration {
	total := time.Duration(0)
	for _, l := range links {
		total += l.Delay(d, size, now.Add(total), random)
	}
	return total
}
