package fabric

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

var (
	errNoRequest    = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	errManyRequests = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
)

// serverStream is the callee's side of a call that arrived as a stream.
type serverStream struct {
	*serverCall
	form          codecState
	clientStreams bool
	received      bool
}

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *Server) serveStream(in call.ServerStream) error {
	head := in.Head()
	m, err := s.find(head.Method)
	if err != nil {
		return err
	}
	f, err := s.newCodecState(head)
	if err != nil {
		return err
	}
	f.passValues = f.proto && carriesValues(in)
	f.lender, _ = in.(lender)
	c := &serverCall{parent: in.Context(), server: s, head: head, stream: in}
	defer c.end()
	ss := &serverStream{serverCall: c, form: f, clientStreams: m.stream != nil && m.stream.ClientStreams}
	return ss.finish(s.run(m, ss))
}

// carriesValues reports whether messages may be sent to s by value.
func carriesValues(s call.ServerStream) bool {
	switch s := s.(type) {
	case *localServer:
		return true
	case *singleStream:
		return s.values
	}
	return false
}

// run calls the handler.
func (s *Server) run(m *method, ss *serverStream) error {
	if m.unary != nil {
		return s.runUnary(m, ss)
	}
	if s.streamServer == nil {
		return m.stream.Handler(m.impl, ss)
	}
	info := &grpc.StreamServerInfo{
		FullMethod: ss.head.Method, IsClientStream: m.stream.ClientStreams, IsServerStream: m.stream.ServerStreams,
	}
	return s.streamServer(m.impl, ss, info, m.stream.Handler)
}

func (s *Server) runUnary(m *method, ss *serverStream) error {
	response, err := m.unary.Handler(m.impl, ss.serverCall, ss.RecvMsg, s.unaryServer)
	if err != nil {
		return err
	}
	return ss.SendMsg(response)
}

// finish sends the remaining header and trailer. The first failure to send or receive a message is
// the status, whatever error the handler returned.
func (ss *serverStream) finish(err error) error {
	if ss.failure != nil {
		err = ss.failure
	}
	end := ss.outcome()
	if len(end.Header) > 0 {
		_ = ss.ensureHeader()
	}
	if len(end.Trailer) > 0 {
		ss.stream.SetTrailer(end.Trailer)
	}
	return handlerStatus(err)
}

// Context implements grpc.ServerStream.
func (ss *serverStream) Context() context.Context { return ss.serverCall }

// SetTrailer implements grpc.ServerStream.
func (ss *serverStream) SetTrailer(md metadata.MD) {
	if err := ss.serverCall.SetTrailer(md); err != nil {
		ss.server.options.logger.Error("set trailer", "method", ss.head.Method, "error", err)
	}
}

// SendMsg implements grpc.ServerStream.
func (ss *serverStream) SendMsg(v any) error {
	return ss.failed(ss.send(v))
}

func (ss *serverStream) send(v any) error {
	m, err := ss.form.pack(v)
	if err != nil {
		return err
	}
	if err := ss.ensureHeader(); err != nil {
		m.Free()
		return toStatus(err)
	}
	return toStatus(ss.stream.Send(m))
}

// RecvMsg implements grpc.ServerStream.
func (ss *serverStream) RecvMsg(v any) error {
	return ss.failed(ss.receive(v))
}

func (ss *serverStream) receive(v any) error {
	m, err := ss.stream.Recv()
	if err == io.EOF && !ss.clientStreams && !ss.received { //nolint:errorlint // the stream's contract says io.EOF itself
		return errNoRequest
	}
	if err != nil {
		return toStatus(err)
	}
	ss.received = true
	if err := ss.form.unpack(m, v); err != nil || ss.clientStreams {
		return err
	}
	return ss.receiveEnd()
}

// receiveEnd expects the end of the stream, not another message.
func (ss *serverStream) receiveEnd() error {
	more, err := ss.stream.Recv()
	if err == io.EOF { //nolint:errorlint // as above
		return nil
	}
	if err != nil {
		return toStatus(err)
	}
	more.Free()
	return errManyRequests
}

// failed records the first failure.
func (ss *serverStream) failed(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // as above
		return err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.failure == nil {
		ss.failure = err
	}
	return err
}
