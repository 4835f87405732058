package fabric

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// A link is one connection to a peer.
type link struct {
	transport call.Transport
	// peer describes the other end, nil if it is not known.
	peer *peer.Peer
	// done is closed when the connection has ended or takes no more calls; nil: never.
	done <-chan struct{}
	// movable says that streams move to the next link when this one takes no more calls. The
	// server has to support package transit.
	movable bool

	streams transit.StreamSet
}

func (l *link) authInfo() credentials.AuthInfo {
	if l.peer == nil {
		return nil
	}
	return l.peer.AuthInfo
}

func (l *link) secure() bool {
	info := l.authInfo()
	return info != nil && credentials.CheckSecurityLevel(info, credentials.PrivacyAndIntegrity) == nil
}

func (l *link) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// A ClientConn makes calls to one target. It is safe for concurrent use.
type ClientConn struct {
	options options
	target  string
	links   connector
	unary   grpc.UnaryInvoker
	stream  grpc.Streamer
}

var _ grpc.ClientConnInterface = (*ClientConn)(nil)

// A connector provides the link for calls.
type connector interface {
	// link returns the current link, and waits for a connection attempt under way; wait: also for
	// the attempts after a failure.
	link(ctx context.Context, wait bool) (*link, error)
	Close() error
}

func newClientConn(target string, links connector, o options) *ClientConn {
	c := &ClientConn{options: o, target: target, links: links}
	c.unary = chainUnaryClient(o.unaryClient, c.invoke)
	c.stream = chainStreamClient(o.streamClient, c.newStream)
	return c
}

// Close ends every call. It may be called twice.
func (c *ClientConn) Close() error { return c.links.Close() }

// Target returns the target that was dialled.
func (c *ClientConn) Target() string { return c.target }

// Invoke implements grpc.ClientConnInterface.
func (c *ClientConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.unary(ctx, method, args, reply, nil, c.allOptions(opts)...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *ClientConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.stream(ctx, desc, nil, method, c.allOptions(opts)...)
}

func (c *ClientConn) allOptions(opts []grpc.CallOption) []grpc.CallOption {
	if len(c.options.callOptions) == 0 {
		return opts
	}
	all := make([]grpc.CallOption, 0, len(c.options.callOptions)+len(opts))
	return append(append(all, c.options.callOptions...), opts...)
}

// outgoingCall holds the link, head and codec of a call that begins.
type outgoingCall struct {
	link  *link
	head  call.Head
	codec codecState
	loan  *Loan // nil: the response is copied
}

// startCall reads the options, waits for the link and builds the head.
func (c *ClientConn) startCall(ctx context.Context, b *outgoingCall, method string, streaming bool, opts []grpc.CallOption) error {
	i := callInfo{maxReceive: c.options.maxReceive, maxSend: c.options.maxSend, codec: c.options.codec}
	err := i.applyAll(opts)
	if err != nil {
		return err
	}
	if err := wellFormed(method); err != nil {
		return err
	}
	if err := contextStatus(ctx); err != nil {
		return err
	}
	if b.link, err = c.links.link(ctx, i.wait); err != nil {
		return toStatus(err)
	}
	_, values := b.link.transport.(*inProcess)
	if b.codec, err = i.newCodecState(values); err != nil {
		return err
	}
	b.codec.lender, _ = b.link.transport.(lender)
	b.loan = i.loan
	return c.makeHead(ctx, b, &i, method, streaming)
}

// wellFormed returns the callee's error for a name without service or method. Not every transport
// carries such names.
func wellFormed(method string) error {
	if strings.HasPrefix(method, "/") && strings.LastIndexByte(method, '/') > 0 {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "malformed method name: %q", method)
}

func (c *ClientConn) makeHead(ctx context.Context, b *outgoingCall, i *callInfo, method string, streaming bool) error {
	md, err := outgoing(ctx)
	if err != nil {
		return err
	}
	if md, err = c.authorize(ctx, b.link, method, i, md); err != nil {
		return err
	}
	b.head = call.Head{Method: method, Metadata: md, Subtype: i.subtype, Priority: i.priority, Streaming: streaming, WaitForReady: i.wait}
	if b.codec.compressor != nil {
		b.head.Encoding = b.codec.encoding
	}
	if d, ok := ctx.Deadline(); ok {
		b.head.Deadline = d
	}
	return nil
}

// invoke makes a unary call, on the transport's fast path if it has one.
func (c *ClientConn) invoke(ctx context.Context, method string, args, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	b := new(outgoingCall)
	r := result{}
	err := c.startCall(ctx, b, method, false, opts)
	if b.loan != nil {
		b.loan.Release()
	}
	if err == nil {
		err = b.invoke(ctx, args, reply, &r)
		r.peer = b.link.peer
	}
	for err != nil && mayResend(ctx, b.link, err) {
		if err = c.startCall(ctx, b, method, false, opts); err == nil {
			err = b.invoke(ctx, args, reply, &r)
			r.peer = b.link.peer
		}
	}
	if len(opts) > 0 {
		if b.link != nil {
			r.report(opts)
		}
		finished(opts, err)
	}
	return err
}

// mayResend reports whether a call may be sent again on the next link: the peer never saw it, since
// its link takes no more calls. A transport may refuse a call shortly before it closes the link's
// done; mayResend waits for that.
func mayResend(ctx context.Context, l *link, err error) bool {
	if l == nil || l.done == nil || !isUnsent(err) {
		return false
	}
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// isUnsent reports whether the peer never saw a call that failed.
func isUnsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

func (b *outgoingCall) invoke(ctx context.Context, args, reply any, r *result) error {
	if local, ok := b.link.transport.(*inProcess); ok && b.codec.passValues && local.direct() {
		return local.invoke(ctx, b, args, reply, r)
	}
	request, err := b.codec.pack(args)
	if err != nil {
		return err
	}
	if u, ok := b.link.transport.(call.Unary); ok {
		return b.invokeUnary(ctx, u, request, reply, r)
	}
	return b.invokeStream(ctx, request, reply, r)
}

// invokeUnary makes the call by call.Unary.
func (b *outgoingCall) invokeUnary(ctx context.Context, u call.Unary, request *call.Message, reply any, r *result) error {
	response, end, err := u.Unary(ctx, &b.head, request)
	if isUnsent(err) {
		request.Free() // it is marshalled again for another link
	}
	r.header, r.trailer = end.Header, end.Trailer
	if err != nil {
		response.Free()
		return toStatus(err)
	}
	if response == nil {
		return errNoResponse
	}
	if b.loan == nil {
		return b.codec.unpack(response, reply)
	}
	held, err := b.codec.borrow(response, reply)
	b.loan.hold(held)
	return err
}

// invokeStream makes the call as a stream.
func (b *outgoingCall) invokeStream(ctx context.Context, request *call.Message, reply any, r *result) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := b.link.transport.Open(ctx, &b.head)
	if err != nil {
		request.Free()
		return toStatus(err)
	}
	if err := s.Send(request); err != nil && err != io.EOF { //nolint:errorlint // the stream's contract says io.EOF itself
		return toStatus(err)
	}
	if err := s.CloseSend(); err != nil && err != io.EOF { //nolint:errorlint // as above
		return toStatus(err)
	}
	err = receiveOnly(s, &b.codec, reply)
	r.header, _ = s.Header()
	r.trailer = s.Trailer()
	return err
}

// receiveOnly receives the single response of a unary call.
func receiveOnly(s call.ClientStream, f *codecState, reply any) error {
	m, err := s.Recv()
	if err == io.EOF { //nolint:errorlint // as above
		return errNoResponse
	}
	if err != nil {
		return toStatus(err)
	}
	if err := f.unpack(m, reply); err != nil {
		return err
	}
	more, err := s.Recv()
	if err == nil {
		more.Free()
		return errManyResponses
	}
	if err == io.EOF { //nolint:errorlint // as above
		return nil
	}
	return toStatus(err)
}

var (
	errNoResponse    = status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	errManyResponses = status.Error(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message")
)
