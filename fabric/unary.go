package fabric

import (
	"context"
	"io"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// serverHandler adapts a Server to call.Handler and call.UnaryHandler, for transports.
type serverHandler struct{ *Server }

// Serve implements call.Handler.
func (s serverHandler) Serve(in call.ServerStream) error {
	if transit.IsMove(in.Head()) {
		return s.streams.Serve(in, s.serveMoving) // no new call: admitted while the server stops
	}
	if err := s.beginCall(); err != nil {
		return err
	}
	defer s.endCall()
	if transit.Name(in.Head()) != "" {
		return s.streams.Serve(in, s.serveMoving)
	}
	return s.serveStream(in)
}

// serveMoving serves a stream that may move to another connection.
func (s *Server) serveMoving(in call.ServerStream) error {
	s.calls.Add(1)
	defer s.endCall()
	return s.serveStream(in)
}

// ServeUnary implements call.UnaryHandler. It takes as long as the registered
// handler does.
func (s serverHandler) ServeUnary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	if err := s.beginCall(); err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	defer s.endCall()
	m, err := s.find(h.Method)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	if m.unary == nil {
		return serveSingle(ctx, h, request, s.serveStream)
	}
	return s.serveUnary(ctx, m, h, request)
}

// unaryCall is a call's context and the state of its messages in one allocation.
type unaryCall struct {
	serverCall
	form     codecState
	request  *call.Message
	borrowed *call.Message // the message to whose memory the handler's request refers
	response *call.Message
}

func (s *Server) serveUnary(ctx context.Context, m *method, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	c := &unaryCall{serverCall: serverCall{parent: ctx, server: s, head: h}, request: request}
	defer func() {
		c.end()
		c.borrowed.Free()
	}()
	var err error
	if c.form, err = s.newCodecState(h); err == nil {
		// A request by value gets a response by value.
		c.form.passValues = c.form.proto && request.Value != nil
		if l, ok := shared.LenderFrom(ctx); ok {
			c.form.lender = l
		}
		err = c.run(m)
	}
	c.request.Free()
	return c.answer(err)
}

func (c *unaryCall) run(m *method) error {
	v, err := m.unary.Handler(m.impl, c, c.decode, c.server.unaryServer)
	if c.failure != nil {
		return c.failure
	}
	if err != nil {
		return err
	}
	c.response, err = c.form.pack(v)
	return err
}

// decode decodes the request for the handler. A failure becomes the call's status.
func (c *unaryCall) decode(v any) error {
	m := c.request
	if m == nil {
		return errNoRequest
	}
	c.request = nil
	var err error
	if c.server.options.borrow && c.borrowed == nil {
		c.borrowed, err = c.form.borrow(m, v)
	} else {
		err = c.form.unpack(m, v)
	}
	c.failure = err
	return err
}

func (c *unaryCall) answer(err error) (*call.Message, call.End, error) {
	if err != nil {
		return nil, c.outcome(), handlerStatus(err)
	}
	return c.response, c.outcome(), nil
}

// serveSingle serves one message with serve, which expects a stream.
func serveSingle(ctx context.Context, h *call.Head, request *call.Message, serve func(call.ServerStream) error) (*call.Message, call.End, error) {
	in := &singleStream{ctx: ctx, head: h, request: request, values: request.Value != nil}
	err := serve(in)
	in.request.Free()
	if err == nil && in.response == nil {
		err = errNoResponse
	}
	if err != nil {
		in.response.Free()
		return nil, in.end, err
	}
	return in.response, in.end, nil
}

// singleStream is a stream of one message each way.
type singleStream struct {
	ctx      context.Context //nolint:containedctx // a stream has one
	head     *call.Head
	request  *call.Message
	response *call.Message
	end      call.End
	values   bool // the caller accepts values
}

func (s *singleStream) Context() context.Context { return s.ctx }
func (s *singleStream) Head() *call.Head         { return s.head }

func (s *singleStream) Recv() (*call.Message, error) {
	m := s.request
	if m == nil {
		return nil, io.EOF
	}
	s.request = nil
	return m, nil
}

func (s *singleStream) Send(m *call.Message) error {
	if s.response != nil {
		m.Free()
		return errManyResponses
	}
	s.response = detach(m)
	return nil
}

func (s *singleStream) SendHeader(md metadata.MD) error {
	s.end.Header = md
	return nil
}

func (s *singleStream) SetTrailer(md metadata.MD) { s.end.Trailer = md }
