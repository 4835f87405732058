package fabric

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// localStreamState is the state that both sides of a streaming call in one process share.
type localStreamState struct {
	head       *call.Head
	up, down   pipe
	handlerCtx context.Context //nolint:containedctx // the handler's
	ended      chan struct{}   // closed when the handler has returned

	mu          sync.Mutex
	headerKnown chan struct{} // closed when the header is set, or the handler returned without one
	hasHeader   bool
	header      metadata.MD
	trailer     metadata.MD
	status      error
}

// localClient is the caller's side.
type localClient struct {
	*localStreamState
	ctx       context.Context //nolint:containedctx // a stream has one
	transport *inProcess
}

// localServer is the callee's side.
type localServer struct{ *localStreamState }

var (
	_ call.ClientStream = (*localClient)(nil)
	_ call.ServerStream = (*localServer)(nil)
)

// Open implements call.Transport.
func (t *inProcess) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if err := t.ended(); err != nil {
		return nil, err
	}
	core := &localStreamState{head: h, ended: make(chan struct{}), headerKnown: make(chan struct{})}
	core.up.init()
	core.down.init()
	mine, cancel := t.handlerContext(ctx)
	core.handlerCtx = mine
	go func() {
		defer cancel()
		core.end(handlerStatus(t.handler.Serve(&localServer{core})))
	}()
	return &localClient{localStreamState: core, ctx: ctx, transport: t}, nil
}

// end records the status that the handler returned, and ends the call.
func (c *localStreamState) end(err error) {
	c.mu.Lock()
	c.status = err
	if !c.hasHeader {
		c.hasHeader = true
		close(c.headerKnown)
	}
	c.mu.Unlock()
	close(c.ended)
	c.up.drop()
}

// Send implements call.ClientStream.
func (c *localClient) Send(m *call.Message) error {
	kept := queuedOf(m)
	for {
		if c.endReason() != nil {
			return io.EOF
		}
		if c.up.push(kept) {
			return nil
		}
		select {
		case <-c.up.writable:
		case <-c.ended:
			return io.EOF
		case <-c.ctx.Done():
		case <-c.transport.life.Done():
		}
	}
}

// endReason returns the reason that the caller or the transport is gone, or nil.
func (c *localClient) endReason() error {
	if err := contextStatus(c.ctx); err != nil {
		return err
	}
	return c.transport.ended()
}

// CloseSend implements call.ClientStream.
func (c *localClient) CloseSend() error {
	c.up.finish()
	return nil
}

// Header implements call.ClientStream.
func (c *localClient) Header() (metadata.MD, error) {
	if err := c.transport.wait(c.ctx, c.headerKnown); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header, nil
}

// Recv implements call.ClientStream.
func (c *localClient) Recv() (*call.Message, error) {
	for {
		if err := c.endReason(); err != nil {
			return nil, err
		}
		if m, _ := c.down.pop(); m != nil {
			return m, nil
		}
		select {
		case <-c.down.readable:
		case <-c.ended:
			return c.afterEnd()
		case <-c.ctx.Done():
		case <-c.transport.life.Done():
		}
	}
}

// afterEnd returns the rest of the stream after the handler's return: messages, then the status.
func (c *localClient) afterEnd() (*call.Message, error) {
	if m, _ := c.down.pop(); m != nil {
		return m, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == nil {
		return nil, io.EOF
	}
	return nil, c.status
}

// Trailer implements call.ClientStream.
func (c *localClient) Trailer() metadata.MD {
	select {
	case <-c.ended:
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trailer
}

// Context implements call.ServerStream.
func (s *localServer) Context() context.Context { return s.handlerCtx }

// Head implements call.ServerStream.
func (s *localServer) Head() *call.Head { return s.head }

// Recv implements call.ServerStream.
func (s *localServer) Recv() (*call.Message, error) {
	for {
		if err := contextStatus(s.handlerCtx); err != nil {
			return nil, err
		}
		m, ended := s.up.pop()
		if m != nil {
			return m, nil
		}
		if ended {
			return nil, io.EOF
		}
		select {
		case <-s.up.readable:
		case <-s.handlerCtx.Done():
		}
	}
}

// Send implements call.ServerStream.
func (s *localServer) Send(m *call.Message) error {
	_ = s.SendHeader(nil)
	kept := queuedOf(m)
	for {
		if err := contextStatus(s.handlerCtx); err != nil {
			return err
		}
		if s.down.push(kept) {
			return nil
		}
		select {
		case <-s.down.writable:
		case <-s.handlerCtx.Done():
		}
	}
}

// SendHeader implements call.ServerStream. Only the first one counts.
func (s *localServer) SendHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasHeader {
		return nil
	}
	s.hasHeader, s.header = true, md
	close(s.headerKnown)
	return nil
}

// SetTrailer implements call.ServerStream.
func (s *localServer) SetTrailer(md metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = md
}

// unaryByStream is Unary for handlers that serve only streams.
func (t *inProcess) unaryByStream(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := t.Open(ctx, h)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	_ = s.Send(request)
	_ = s.CloseSend()
	m, err := receiveSingle(s)
	header, _ := s.Header()
	return m, call.End{Header: header, Trailer: s.Trailer()}, err
}

// receiveSingle returns the only message of a call.
func receiveSingle(s call.ClientStream) (*call.Message, error) {
	m, err := s.Recv()
	if err == io.EOF { //nolint:errorlint // the stream's contract says io.EOF itself
		return nil, errNoResponse
	}
	if err != nil {
		return nil, err
	}
	more, err := s.Recv()
	if err == io.EOF { //nolint:errorlint // as above
		return m, nil
	}
	m.Free()
	if err != nil {
		return nil, err
	}
	more.Free()
	return nil, errManyResponses
}
