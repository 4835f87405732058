package fabric

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// clientStream is the caller's side of a streaming call.
type clientStream struct {
	out    outgoingCall
	ctx    context.Context //nolint:containedctx // a stream has one
	cancel context.CancelFunc
	unhook func() bool
	desc   *grpc.StreamDesc
	opts   []grpc.CallOption
	stream call.ClientStream

	sendClosed atomic.Bool // CloseSend was called
	received   bool        // a message was received; owned by the receiving goroutine
	ended      sync.Once
	reported   sync.Once
	final      atomic.Pointer[result] // the result, once the call has ended
}

func (c *ClientConn) newStream(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &clientStream{desc: desc, opts: opts}
	if err := c.openStream(ctx, s, method); err != nil {
		finished(opts, err)
		return nil, err
	}
	s.unhook = context.AfterFunc(s.ctx, func() { s.end(contextStatus(s.ctx)) })
	return s, nil
}

// openStream opens s, again on another link if a link takes no more calls.
func (c *ClientConn) openStream(ctx context.Context, s *clientStream, method string) error {
	for {
		if err := c.startCall(ctx, &s.out, method, s.desc.ClientStreams || s.desc.ServerStreams, s.opts); err != nil {
			return err
		}
		s.ctx, s.cancel = context.WithCancel(ctx) //nolint:fatcontext // each is ctx's, not the last one's
		err := s.open(c.links)
		if err == nil {
			return nil
		}
		s.cancel()
		if !mayResend(ctx, s.out.link, err) {
			return err
		}
	}
}

func (s *clientStream) open(links connector) (err error) {
	if !s.out.link.movable {
		s.stream, err = s.out.link.transport.Open(s.ctx, &s.out.head)
		return toStatus(err)
	}
	moving, err := transit.Open(s.ctx, &s.out.head, s.out.link.openLeg(links))
	if err != nil {
		return toStatus(err)
	}
	s.stream = moving
	if s.out.codec.lender != nil {
		s.out.codec.lender = moving
	}
	return nil
}

// openLeg opens a stream's first leg on l, and later legs on the links that follow l.
func (l *link) openLeg(links connector) transit.OpenFunc {
	return func(ctx context.Context, h *call.Head) (call.ClientStream, *transit.StreamSet, error) {
		link := l
		if transit.IsMove(h) {
			var err error
			if link, err = links.link(ctx, true); err != nil {
				return nil, nil, err
			}
		}
		s, err := link.transport.Open(ctx, h)
		if lender, ok := link.transport.(lender); ok && err == nil {
			return lending{s, lender}, &link.streams, nil
		}
		return s, &link.streams, err
	}
}

// lending is a stream that also lends its transport's memory.
type lending struct {
	call.ClientStream
	lender
}

func (s *clientStream) Context() context.Context { return s.ctx }

func (s *clientStream) Header() (metadata.MD, error) {
	if r := s.final.Load(); r != nil {
		return r.header, nil
	}
	md, err := s.stream.Header()
	if err != nil {
		// RecvMsg returns the error to the caller, as with grpc-go.
		return nil, nil //nolint:nilerr // see above
	}
	return md, nil
}

func (s *clientStream) Trailer() metadata.MD { return s.stream.Trailer() }

func (s *clientStream) CloseSend() error {
	if !s.sendClosed.Swap(true) {
		// RecvMsg returns the error.
		_ = s.stream.CloseSend()
	}
	return nil
}

func (s *clientStream) SendMsg(m any) error {
	err := s.send(m)
	if err == nil && !s.desc.ClientStreams {
		return s.CloseSend()
	}
	if err == io.EOF && !s.desc.ClientStreams { //nolint:errorlint // io.EOF itself is the sign
		return nil
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as above
		s.unhook()
		s.end(err)
	}
	return err
}

func (s *clientStream) send(m any) error {
	if s.sendClosed.Load() {
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	}
	packed, err := s.out.codec.pack(m)
	if err != nil {
		return err
	}
	return s.sendError(s.stream.Send(packed))
}

// sendError turns every failure of a transport into io.EOF: RecvMsg returns the status.
func (s *clientStream) sendError(err error) error {
	if err != nil {
		return io.EOF
	}
	return nil
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.receive(m)
	if err == nil && !s.desc.ServerStreams {
		err = s.receiveEnd()
		if err == io.EOF { //nolint:errorlint // as above
			s.finish(nil)
			return nil
		}
	}
	if err != nil {
		s.finish(err)
	}
	return err
}

func (s *clientStream) receive(m any) error {
	// A caller whose context has ended gets no messages, not even received ones.
	if err := contextStatus(s.ctx); err != nil && s.final.Load() == nil {
		return err
	}
	packed, err := s.stream.Recv()
	if err == io.EOF && !s.desc.ServerStreams && !s.received { //nolint:errorlint // as above
		return errNoResponse
	}
	if err != nil {
		return toStatus(err)
	}
	s.received = true
	return s.out.codec.unpack(packed, m)
}

// receiveEnd expects the end of the stream, not another message.
func (s *clientStream) receiveEnd() error {
	more, err := s.stream.Recv()
	if err != nil {
		return toStatus(err)
	}
	more.Free()
	return errManyResponses
}

// finish ends a call whose status RecvMsg has received.
func (s *clientStream) finish(err error) {
	s.reported.Do(func() {
		header, _ := s.Header()
		r := result{header: header, trailer: s.stream.Trailer(), peer: s.out.link.peer}
		s.final.Store(&r)
		r.report(s.opts)
	})
	s.unhook()
	s.end(err)
}

// end releases the call's resources, and calls its OnFinish options.
func (s *clientStream) end(err error) {
	s.ended.Do(func() {
		if err == io.EOF { //nolint:errorlint // as above
			err = nil
		}
		finished(s.opts, err)
		s.cancel()
	})
}
