package shared

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// A clientStream is a call in flight as its caller uses it.
type clientStream struct {
	//nolint:containedctx // the call's: its end is the call's end
	ctx  context.Context
	c    *caller
	p    *pending
	stop func() bool // the watch over ctx
	done func()      // gives back what ctx holds
	left sync.Once
}

func (c *caller) openStream(ctx context.Context, h *call.Head) (*clientStream, error) {
	p := &pending{first: newWaiter()}
	if err := c.begin(ctx, p, h); err != nil {
		return nil, inStatus(err)
	}
	if err := c.start(ctx, kindOpen, p, h, nil); err != nil {
		c.part()
		c.abandon(p, inStatus(err))
		return nil, inStatus(err)
	}
	s := &clientStream{c: c, p: p, stop: func() bool { return true }, done: func() {}}
	s.watch(ctx)
	return s, nil
}

// watch ends the call with ctx.
func (s *clientStream) watch(ctx context.Context) {
	c, p := s.c, s.p
	if s.ctx = ctx; ctx.Done() != nil {
		s.stop = context.AfterFunc(ctx, func() {
			c.abandon(p, inStatus(ctx.Err()))
			s.leave()
		})
	}
}

// leave counts the call as over for its caller.
func (s *clientStream) leave() {
	s.left.Do(s.c.part)
}

func (s *clientStream) finished() {
	s.stop()
	s.done()
	s.leave()
}

// use keeps the region mapped during a method. It fails when the connection has
// ended, which the method then says.
func (s *clientStream) use() error {
	if s.c.region.tryRetain() {
		return nil
	}
	return s.c.conn.reason()
}

// Send implements call.ClientStream.
func (s *clientStream) Send(m *call.Message) error {
	if err := s.use(); err != nil {
		m.Free()
		return s.outcome(err)
	}
	defer s.c.region.release()
	return s.outcome(s.p.write(s.ctx, m))
}

// outcome turns why a call ended into io.EOF: Recv tells the rest.
func (s *clientStream) outcome(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s.c.mu.Lock()
	over := s.p.over || s.c.dead != nil
	s.c.mu.Unlock()
	if over || s.ctx.Err() != nil {
		return io.EOF
	}
	return inStatus(err)
}

// CloseSend implements call.ClientStream.
func (s *clientStream) CloseSend() error {
	if s.use() != nil {
		return nil
	}
	defer s.c.region.release()
	s.c.mu.Lock()
	over := s.p.over || s.c.dead != nil
	s.c.mu.Unlock()
	if over {
		return nil
	}
	if err := s.outcome(s.p.end(s.ctx)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Header implements call.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	if err := s.use(); err == nil {
		_ = s.c.await(s.ctx, &s.p.first)
		s.c.region.release()
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case s.p.greeted:
		return metadataOf(s.p.header)
	case s.p.local != nil:
		return nil, s.p.local
	case s.p.closed:
		e, err, _ := scanOutcome(s.p.outcome, s.p.code, s.p.text)
		return e.Header, err
	case s.c.dead != nil:
		return nil, s.c.dead
	}
	return nil, inStatus(s.ctx.Err())
}

// Recv implements call.ClientStream.
func (s *clientStream) Recv() (*call.Message, error) {
	if err := s.use(); err != nil {
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
	if !s.p.closed || s.p.local != nil {
		return nil
	}
	e, _, err := scanOutcome(s.p.outcome, s.p.code, s.p.text)
	if err != nil {
		return nil
	}
	return e.Trailer
}

// Lend implements Lender.
func (s *clientStream) Lend(size int) (*call.Message, error) { return s.c.Lend(size) }
