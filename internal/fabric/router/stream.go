package router

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// Serve implements call.Handler.
func (r *Router) Serve(s call.ServerStream) error {
	h := s.Head()
	c := r.startExchange(h)
	var err error
	if h.Streaming {
		err = (&streamCall{exchange: c}).serve(s)
	} else {
		err = c.single(s)
	}
	c.finish(err)
	return err
}

// single serves a unary call that arrives as a stream.
func (c *exchange) single(s call.ServerStream) error {
	request, err := s.Recv()
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Internal, "router: the caller ended without a request")
	}
	if err != nil {
		return toStatus(err)
	}
	c.request = request
	response, end, err := c.unary(s.Context())
	if len(end.Header) > 0 {
		// A caller that is gone needs no header.
		_ = s.SendHeader(end.Header)
	}
	s.SetTrailer(end.Trailer)
	if err != nil {
		return err
	}
	return toStatus(s.Send(response))
}

// streamCall is a streaming call: the exchange and the flow of its messages.
type streamCall struct {
	*exchange
	flow *flow
}

// serve forwards the call.
func (c *streamCall) serve(s call.ServerStream) error {
	c.retainMemory()
	f := &flow{server: s, router: c.router, method: c.method, replay: replayBuffer{used: &c.router.replayed}}
	c.flow = f
	c.recognize(s.Head())
	if c.chain.Request() && !c.Moved {
		if err := c.receiveFirst(); err != nil {
			return err
		}
	}
	ctx, err := c.applyPolicies(s.Context())
	if err != nil {
		return err
	}
	if err := wait(ctx, c.Plan.Delay); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.router.ctx, cancel)()
	// The plan belongs to the exchange, which the flow may outlive.
	f.ctx, f.cancel, f.links = ctx, cancel, append([]*policy.Link(nil), c.Plan.Links...)
	f.firstMessage, c.request = c.request, nil
	f.retried = c.Plan.Retry != nil && c.Plan.Retry.Attempts > 1
	f.committed.Store(c.Moved)
	defer f.end()
	return atDeadline(s.Context(), c.runAttempts())
}

// atDeadline returns the status of a call whose caller's context may have reached its deadline: the
// reader of its messages sees that first, and then cancels the call.
func atDeadline(ctx context.Context, err error) error {
	if status.Code(err) == codes.Canceled && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return toStatus(context.DeadlineExceeded)
	}
	return err
}

// receiveFirst receives the first message for the policies that read it.
func (c *streamCall) receiveFirst() error {
	m, err := c.flow.server.Recv()
	switch {
	case errors.Is(err, io.EOF):
		c.flow.closed = true
	case err != nil:
		return toStatus(err)
	}
	c.request = m
	return nil
}

// runAttempts makes attempts until an endpoint begins to answer, and forwards its answer.
func (c *streamCall) runAttempts() error {
	f := c.flow
	var backoff readyBackoff
	var lastEnd call.End
	var last error
	for attempt := 1; ; {
		end, opened, err := c.attempt()
		if errors.Is(err, errNotKept) {
			return c.close(lastEnd, last)
		}
		if err == nil || c.Moved || f.ctx.Err() != nil {
			return c.close(end, err)
		}
		lastEnd, last = end, err
		unsent := !opened && c.endpoint != nil && status.Code(err) == codes.Unavailable
		switch {
		case unsent && (c.mayRetryUnsent() || backoff.next(f.ctx, c.exchange)):
		case f.committed.Load() || !f.retried || !c.retries(f.ctx, attempt, err, end.Trailer):
			return c.close(end, err)
		default:
			attempt++
		}
	}
}

// close sends the trailer of the call.
func (c *streamCall) close(end call.End, err error) error {
	if c.movedAway = isMovedAway(end, err); c.movedAway {
		c.flow.server.SetTrailer(end.Trailer)
		return nil
	}
	_, trailer, changed := c.respond(nil, nonNil(end.Trailer))
	c.flow.server.SetTrailer(trailer)
	if changed != nil {
		return changed
	}
	return err
}

// attempt sends the stream to one endpoint and forwards its answer. opened reports that the
// endpoint may have seen the call.
func (c *streamCall) attempt() (end call.End, opened bool, err error) {
	f := c.flow
	p, err := c.pick(f.ctx)
	if err != nil {
		c.endpoint = nil
		return end, false, err
	}
	c.endpoint, c.tried = p.endpoint, append(c.tried, p.id)
	c.attempts++
	defer func() { c.done(p, end, err) }()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	up, err := p.transport.Open(ctx, c.Head)
	if err != nil {
		return end, false, openError(err)
	}
	defer c.router.streams.add(c.streamName, p.id)()
	if err := f.attach(up, p.forwards); err != nil {
		return end, true, err
	}
	end, err = c.download(up)
	// A stream that its callee never saw is sent again like one that could not be opened.
	return end, f.committed.Load() || !isUnsent(err), err
}

// download forwards the callee's messages to the caller.
func (c *streamCall) download(up call.ClientStream) (end call.End, err error) {
	f := c.flow
	if end.Header, err = up.Header(); err == nil && end.Header != nil {
		f.answered()
		c.movedIn = true
		header, err := c.responseHeader(end.Header)
		if err != nil {
			return end, err
		}
		if err := f.server.SendHeader(header); err != nil {
			return end, f.callerGone(err)
		}
	}
	push, finish := f.pipeline(policy.ToClient, f.deliver)
	if c.Moved && transit.HeaderInBand(end.Header) {
		push = c.withLateHeader(push)
	}
	err = f.receive(up, push)
	if failed := finish(); failed != nil {
		return end, failed
	}
	end.Trailer = up.Trailer()
	return end, err
}

// receive pushes the callee's messages and returns the status of the call.
func (f *flow) receive(up call.ClientStream, push func(*call.Message) error) error {
	for {
		m, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return toStatus(err)
		}
		f.answered()
		if err := push(m); err != nil {
			return err
		}
	}
}

// flow is the part of a stream that both of its directions share.
type flow struct {
	router       *Router
	method       *method
	server       call.ServerStream
	ctx          context.Context //nolint:containedctx // the call's
	cancel       context.CancelFunc
	links        []*policy.Link
	firstMessage *call.Message // the first message, when it was received already

	retried bool // the policies may grant attempts after the first

	// committed means that there will be no other attempt: sent messages are no longer kept.
	committed atomic.Bool

	mu     sync.Mutex // guards the direction to the callee
	up     call.ClientStream
	replay replayBuffer
	closed bool // the caller has sent everything
}

// errNotKept is the error of an attempt after the first whose stream would begin in the middle: the
// caller has sent more than the replay buffer holds since the last attempt failed. It says nothing
// about the endpoint.
var errNotKept = status.Error(codes.Canceled, "router: the stream cannot be sent again from its beginning")

// attach connects the upload to a callee, after replaying the messages sent to earlier attempts.
// forwards is Endpoint.Forwards of the callee's endpoint.
func (f *flow) attach(up call.ClientStream, forwards bool) error {
	f.mu.Lock()
	first := f.up == nil
	if !first && f.replay.incomplete {
		defer f.mu.Unlock()
		return errNotKept
	}
	f.up = up
	if first {
		if !f.retried && !forwards {
			f.committed.Store(true)
		}
		f.mu.Unlock()
		return f.spawn(f.upload)
	}
	// The replay does not block this goroutine: the callee may wait for its own messages to be read
	// first.
	err := f.spawn(func() {
		defer f.mu.Unlock()
		f.sendAgain(up)
	})
	if err != nil {
		f.mu.Unlock()
	}
	return err
}

// spawn starts a goroutine of the router, unless the router is closed.
func (f *flow) spawn(run func()) error {
	if !f.router.spawn(run) {
		return status.Error(codes.Unavailable, errClosed.Error())
	}
	return nil
}

// sendAgain sends the kept messages, and the end if the caller has sent it. The caller holds mu.
func (f *flow) sendAgain(up call.ClientStream) {
	f.replay.send(up)
	if f.closed {
		// If the call has ended, its receiver gets the error.
		_ = up.CloseSend()
	}
}

// answered notes that the callee has begun to answer, and frees the kept messages.
func (f *flow) answered() {
	if f.committed.Load() {
		return
	}
	f.committed.Store(true)
	// While a message is sent the messages stay until the next one is.
	if f.mu.TryLock() {
		f.replay.drop()
		f.mu.Unlock()
	}
}

// upload forwards the caller's messages until either side ends.
func (f *flow) upload() {
	push, finish := f.pipeline(policy.ToServer, f.send)
	sent := f.pump(push)
	if finish() != nil || !sent {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	// If the call has ended, its receiver gets the error.
	_ = f.up.CloseSend()
}

// pump pushes the caller's messages. It returns true at their regular end.
func (f *flow) pump(push func(*call.Message) error) bool {
	if m := f.firstMessage; m != nil {
		f.firstMessage = nil
		if push(m) != nil {
			return false
		}
	}
	for !f.closed {
		m, err := f.server.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			// The caller is gone; after the call's end that does not matter.
			f.cancel()
			return false
		}
		if push(m) != nil {
			return false
		}
	}
	return true
}

// send sends a message to the callee. An error means that the callee accepts no more messages.
func (f *flow) send(m *call.Message) error {
	size := len(m.Data)
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.keepLocked(m)
	f.method.countBytes(size, 0, time.Now())
	// A message that could not be sent but was kept is replayed by the next attempt.
	if err := f.up.Send(m); err != nil && !kept {
		return err
	}
	return nil
}

// keepLocked keeps a message for another attempt, if there may be one. The caller holds mu.
func (f *flow) keepLocked(m *call.Message) bool {
	if f.committed.Load() {
		f.replay.drop()
		return false
	}
	if !f.replay.appendCopy(m) {
		f.committed.Store(true)
		return false
	}
	return true
}

// end releases the flow's resources. The upload, which may still wait for the caller, keeps no
// messages afterwards.
func (f *flow) end() {
	f.committed.Store(true)
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replay.drop()
}

// deliver sends a message to the caller.
func (f *flow) deliver(m *call.Message) error {
	f.method.countBytes(0, len(m.Data), time.Now())
	if err := f.server.Send(m); err != nil {
		return f.callerGone(err)
	}
	return nil
}

// callerGone ends a call whose caller is unreachable.
func (f *flow) callerGone(err error) error {
	f.cancel()
	if ended := f.server.Context().Err(); ended != nil {
		return toStatus(ended)
	}
	return status.Errorf(codes.Canceled, "router: the caller is gone: %v", err)
}
