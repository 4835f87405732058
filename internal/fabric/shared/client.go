package shared

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// A clientStream is the caller's call.ClientStream.
type clientStream struct {
	//nolint:containedctx // the call's: its end is the call's end
	ctx     context.Context
	c       *caller
	p       *pending
	unwatch func() bool // stops watching ctx
	release func()      // releases ctx's resources
	endOnce sync.Once
}

func (c *caller) openStream(ctx context.Context, h *call.Head) (*clientStream, error) {
	p := &pending{headerWaiter: newWaiter()}
	if err := c.allocateCall(ctx, p, h); err != nil {
		return nil, inStatus(err)
	}
	if err := c.start(ctx, kindOpen, p, h, nil); err != nil {
		c.endCall()
		c.abandon(p, inStatus(err))
		return nil, inStatus(err)
	}
	s := &clientStream{c: c, p: p, unwatch: func() bool { return true }, release: func() {}}
	s.watch(ctx)
	return s, nil
}

// watch ends the call when ctx ends.
func (s *clientStream) watch(ctx context.Context) {
	c, p := s.c, s.p
	if s.ctx = ctx; ctx.Done() != nil {
		s.unwatch = context.AfterFunc(ctx, func() {
			c.abandon(p, inStatus(ctx.Err()))
			s.endCall()
		})
	}
}

// endCall counts the call as ended, once.
func (s *clientStream) endCall() {
	s.endOnce.Do(s.c.endCall)
}

func (s *clientStream) finished() {
	s.unwatch()
	s.release()
	s.endCall()
}

// retain keeps the region mapped during a method. It fails when the connection has ended; the
// method returns that error.
func (s *clientStream) retain() error {
	if s.c.region.tryRetain() {
		return nil
	}
	return s.c.conn.reason()
}

// Send implements call.ClientStream.
func (s *clientStream) Send(m *call.Message) error {
	if err := s.retain(); err != nil {
		m.Free()
		return s.sendError(err)
	}
	defer s.c.region.release()
	return s.sendError(s.p.write(s.ctx, m))
}

// sendError converts an error of sending to io.EOF if the call has ended: Recv returns the status.
func (s *clientStream) sendError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s.c.mu.Lock()
	over := s.p.over || s.c.closeErr != nil
	s.c.mu.Unlock()
	if over || s.ctx.Err() != nil {
		return io.EOF
	}
	return inStatus(err)
}

// CloseSend implements call.ClientStream.
func (s *clientStream) CloseSend() error {
	if s.retain() != nil {
		return nil
	}
	defer s.c.region.release()
	s.c.mu.Lock()
	over := s.p.over || s.c.closeErr != nil
	s.c.mu.Unlock()
	if over {
		return nil
	}
	if err := s.sendError(s.p.closeSend(s.ctx)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Header implements call.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	if err := s.retain(); err == nil {
		_ = s.c.await(s.ctx, &s.p.headerWaiter)
		s.c.region.release()
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case s.p.headerReceived:
		return decodeMetadata(s.p.header)
	case s.p.localErr != nil:
		return nil, s.p.localErr
	case s.p.closed:
		e, err, _ := scanOutcome(s.p.outcome, s.p.code, s.p.hasStatus)
		return e.Header, err
	case s.c.closeErr != nil:
		return nil, s.c.closeErr
	}
	return nil, inStatus(s.ctx.Err())
}

// Recv implements call.ClientStream.
func (s *clientStream) Recv() (*call.Message, error) {
	if err := s.retain(); err != nil {
		return nil, err
	}
	defer s.c.region.release()
	m, err := s.p.next(s.ctx)
	if err == nil {
		return m, nil
	}
	s.finished()
	if !errors.Is(err, io.EOF) {
		s.c.abandon(s.p, inStatus(err))
		return nil, inStatus(err)
	}
	if _, err := s.p.result(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// Trailer implements call.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.p.closed || s.p.localErr != nil {
		return nil
	}
	e, _, err := scanOutcome(s.p.outcome, s.p.code, s.p.hasStatus)
	if err != nil {
		return nil
	}
	return e.Trailer
}

// Lend implements Lender.
func (s *clientStream) Lend(size int) (*call.Message, error) { return s.c.Lend(size) }
