package plain

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// transport is a grpc.ClientConn.
type transport struct {
	o     Options
	conn  *grpc.ClientConn
	pool  bufferPool
	opens sync.WaitGroup // of calls that wait for the connection

	mu     sync.Mutex // held to add to opens, so that Close waits for all of them
	closed bool
}

// Dial returns a transport to the gRPC server at target, in the syntax of
// grpc.NewClient. It connects at the first call. The transport also implements call.Unary.
func Dial(target string, o Options) (call.Transport, error) {
	o.setDefaults()
	t := &transport{o: o}
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // policies configure retries
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{&t.pool}),
			grpc.MaxCallRecvMsgSize(o.MaxMessage),
		),
		experimental.WithBufferPool(&t.pool),
	}, o.Dial...)
	var err error
	if t.conn, err = grpc.NewClient(target, options...); err != nil {
		return nil, err
	}
	return t, nil
}

// Close implements call.Transport.
func (t *transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	defer t.pool.Close()
	defer t.opens.Wait()
	if err := t.conn.Close(); err != nil && status.Code(err) != codes.Canceled {
		return err
	}
	return nil
}

// outgoing returns the context and the options of grpc-go for a call with the head h.
func outgoing(ctx context.Context, h *call.Head) (context.Context, context.CancelFunc, []grpc.CallOption) {
	md := transit.Strip(h.Metadata)
	if _, ok := md["user-agent"]; ok {
		md = md.Copy() // grpc-go sends its own
		delete(md, "user-agent")
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	var options []grpc.CallOption
	if h.Subtype != "" {
		options = append(options, grpc.CallContentSubtype(h.Subtype))
	}
	if h.Encoding != "" && encoding.GetCompressor(h.Encoding) != nil {
		options = append(options, grpc.UseCompressor(h.Encoding))
	}
	if h.Deadline.IsZero() {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, options
	}
	ctx, cancel := context.WithDeadline(ctx, h.Deadline)
	return ctx, cancel, options
}

// Unary implements call.Unary.
func (t *transport) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	message, err := decompress(request, h.Encoding, t.o.MaxMessage)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	ctx, cancel, options := outgoing(ctx, h)
	defer cancel()
	var end call.End
	sent, response := &outgoingRequest{message: message}, new(call.Message)
	err = t.conn.Invoke(ctx, h.Method, sent, response,
		append(options, grpc.Header(&end.Header), grpc.Trailer(&end.Trailer))...)
	end.Header = plainHeader(end.Header)
	if !sent.encoded {
		err = unsent(err)
	}
	if (!sent.encoded || message != request) && !isUnsent(err) {
		request.Free()
	}
	if err != nil {
		response.Free()
		return nil, end, err
	}
	return response, end, nil
}

// An unsentError is the error of a call that has not been sent, since there was no connection to the
// server: the call can be sent to another server.
type unsentError struct{ error }

// GRPCStatus implements the interface that package status recognises.
func (u unsentError) GRPCStatus() *status.Status { return status.Convert(u.error) }

// Unsent reports that the callee never saw the call.
func (unsentError) Unsent() bool { return true }

// unsent returns the error of a call that grpc-go did not begin.
func unsent(err error) error {
	switch s := status.Convert(err); {
	case s.Code() == codes.Unavailable:
		return unsentError{err}
	case s.Code() == codes.Internal && strings.Contains(s.Message(), headerListTooLong):
		// Internal would blame the server, which balancers then eject.
		return status.Errorf(codes.ResourceExhausted, "plain: the call's metadata is larger than its server accepts: %s", s.Message())
	}
	return err // the call's deadline, its caller or its metadata is the reason
}

// headerListTooLong is a part of grpc-go's message for metadata that is larger than the server's
// SETTINGS_MAX_HEADER_LIST_SIZE. grpc-go has no other sign of it.
const headerListTooLong = "header list size to send"

func isUnsent(err error) bool {
	_, ok := err.(unsentError) //nolint:errorlint // unsent returned it
	return ok
}

// plainHeader returns a header without the fields of HTTP/2.
func plainHeader(md metadata.MD) metadata.MD {
	if _, ok := md["content-type"]; ok {
		md = md.Copy()
		delete(md, "content-type")
	}
	return md
}

// Open implements call.Transport.
func (t *transport) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if transit.IsMove(h) {
		return nil, status.Error(codes.FailedPrecondition, "plain: a stream on HTTP/2 can't move")
	}
	ctx, cancel, options := outgoing(ctx, h)
	s := &clientStream{encoding: h.Encoding, most: t.o.MaxMessage, cancel: cancel, begun: make(chan struct{})}
	begin := func() {
		defer close(s.begun)
		desc := grpc.StreamDesc{StreamName: h.Name(), ServerStreams: true, ClientStreams: true}
		if s.stream, s.err = t.conn.NewStream(ctx, &desc, h.Method, options...); s.err != nil {
			s.err = unsent(s.err)
			cancel()
		}
	}
	if t.conn.GetState() == connectivity.Ready {
		begin()
		if s.err != nil {
			return nil, s.err
		}
		return s, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		cancel()
		return nil, status.Error(codes.Unavailable, "plain: the transport is closed")
	}
	t.opens.Go(begin) // ctx and Close end it
	return s, nil
}

// clientStream is the caller's side of a call by grpc-go.
type clientStream struct {
	encoding string
	most     int
	cancel   context.CancelFunc

	begun  chan struct{} // closed when stream or err is set
	stream grpc.ClientStream
	err    error
}

// Send implements call.ClientStream.
func (s *clientStream) Send(m *call.Message) error {
	<-s.begun
	if s.err != nil {
		m.Free()
		return io.EOF
	}
	m, err := unpack(m, s.encoding, s.most)
	if err != nil {
		return err
	}
	return s.stream.SendMsg(m)
}

// CloseSend implements call.ClientStream.
func (s *clientStream) CloseSend() error {
	<-s.begun
	if s.err != nil {
		return nil //nolint:nilerr // Recv returns it
	}
	return s.stream.CloseSend()
}

// Header implements call.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	<-s.begun
	if s.err != nil {
		return nil, s.err
	}
	md, err := s.stream.Header()
	return plainHeader(md), err
}

// Recv implements call.ClientStream.
func (s *clientStream) Recv() (*call.Message, error) {
	<-s.begun
	if s.err != nil {
		return nil, s.err
	}
	m := new(call.Message)
	if err := s.stream.RecvMsg(m); err != nil {
		s.cancel()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	return m, nil
}

// Trailer implements call.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	<-s.begun
	if s.err != nil {
		return nil
	}
	return s.stream.Trailer()
}
