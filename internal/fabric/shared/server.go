package shared

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// A served is the callee's state of a call, and the handler's call.ServerStream.
type served struct {
	stream
	c    *callee
	head *call.Head
	//nolint:containedctx // the call's, which ends with it
	ctx       context.Context
	cancel    context.CancelFunc
	single    bool // unary: the request came with the call
	cancelled bool // the caller has cancelled; under the end's mutex

	replyMu    sync.Mutex
	headerSent bool
	header     metadata.MD
	trailer    metadata.MD
	heldReply  *call.Message // the only response, which is sent together with the end
	replied    bool
}

// run serves the call until it has ended.
func (s *served) run() {
	if s.c.unary != nil && !s.head.Streaming {
		s.runUnary()
		return
	}
	err := s.c.handler.Serve(s)
	s.replyMu.Lock()
	held, e := s.heldReply, call.End{Header: s.header, Trailer: s.trailer}
	s.heldReply = nil
	s.replyMu.Unlock()
	if err == nil && held == nil && s.single && !s.replied {
		err = status.Error(codes.Internal, "the handler sent no message")
	}
	s.finish(held, e, err)
}

func (s *served) runUnary() {
	m, err := s.next(s.ctx)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Internal, "the caller sent no message")
		}
		s.finish(nil, call.End{}, err)
		return
	}
	response, e, err := s.c.unary.ServeUnary(s.ctx, s.head, m)
	if err == nil && response == nil {
		response = &call.Message{}
	}
	s.finish(response, e, err)
}

// finish sends the end, unless the caller has cancelled, and removes the call.
func (s *served) finish(response *call.Message, e call.End, err error) {
	defer s.cancel()
	if ctxErr := s.ctx.Err(); ctxErr != nil && err == nil {
		err = ctxErr
	}
	if err == nil && response != nil {
		response, err = s.sendIfLarge(response)
	}
	defer response.Free()
	s.c.mu.Lock()
	s.c.detectWaiting()
	cancelled := s.cancelled
	s.c.mu.Unlock()
	if !cancelled {
		_ = s.sendEnd(response, e, err) // an error means that the connection has ended
	}
	s.c.mu.Lock()
	delete(s.c.calls, s.id)
	s.discard()
	s.c.mu.Unlock()
}

// sendIfLarge sends a response that exceeds a heap block before the end.
func (s *served) sendIfLarge(response *call.Message) (*call.Message, error) {
	data, err := response.Bytes()
	if err != nil || len(data) <= s.c.heap.maxBlock() {
		return response, err
	}
	return nil, s.write(s.ctx, response)
}

// sendEnd posts the reply or the status.
func (s *served) sendEnd(response *call.Message, e call.End, err error) error {
	if response == nil && err == nil {
		d := desc{kind: kindStatus, call: s.id}
		err = s.c.send(s.c.base, s.priority, &d, appendOutcome(nil, e, status.New(codes.OK, "")), nil)
		return s.c.reportTooLong(s.c.base, s.id, s.priority, nil, err)
	}
	return s.c.reply(s.c.base, s.id, s.priority, response, e, err)
}

// Context implements call.ServerStream.
func (s *served) Context() context.Context { return s.ctx }

// Head implements call.ServerStream.
func (s *served) Head() *call.Head { return s.head }

// Lend implements Lender.
func (s *served) Lend(size int) (*call.Message, error) { return s.c.Lend(size) }

// Recv implements call.ServerStream.
func (s *served) Recv() (*call.Message, error) {
	m, err := s.next(s.ctx)
	return m, inStatus(err)
}

// SendHeader implements call.ServerStream.
func (s *served) SendHeader(md metadata.MD) error {
	s.replyMu.Lock()
	defer s.replyMu.Unlock()
	if s.headerSent || s.header != nil {
		return status.Error(codes.Internal, "the header was sent already")
	}
	s.header = metadata.Join(md)
	if s.single && !s.replied {
		return nil // sent with the reply, or before the second message
	}
	return s.sendHeader()
}

// sendHeader sends the header, if there is one that was not sent.
func (s *served) sendHeader() error {
	if s.headerSent {
		return nil
	}
	s.headerSent = true
	head := appendMetadata(nil, s.header)
	s.header = nil
	return inStatus(s.c.send(s.ctx, s.priority, &desc{kind: kindHeader, call: s.id}, head, nil))
}

// Send implements call.ServerStream. The response of a unary call is held until the handler
// returns, and sent with the status.
func (s *served) Send(m *call.Message) error {
	s.replyMu.Lock()
	defer s.replyMu.Unlock()
	if s.single && !s.head.Streaming && !s.replied {
		s.heldReply, s.replied = m, true
		return nil
	}
	if held := s.heldReply; held != nil {
		s.heldReply = nil
		if err := s.sendMessage(held); err != nil {
			m.Free()
			return err
		}
	}
	s.replied = true
	return s.sendMessage(m)
}

func (s *served) sendMessage(m *call.Message) error {
	if s.header != nil {
		if err := s.sendHeader(); err != nil {
			m.Free()
			return err
		}
	}
	err := s.write(s.ctx, m)
	if errors.Is(err, io.EOF) {
		err = context.Canceled
	}
	return inStatus(err)
}

// SetTrailer implements call.ServerStream.
func (s *served) SetTrailer(md metadata.MD) {
	s.replyMu.Lock()
	defer s.replyMu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}
