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

// A served is a call of the peer, as its handler uses it.
type served struct {
	stream
	c    *callee
	head *call.Head
	//nolint:containedctx // the call's: it ends with it
	ctx       context.Context
	cancel    context.CancelFunc
	single    bool // the caller sent its only message with the call
	cancelled bool // the caller does not want it any more; under the end's mutex

	words   sync.Mutex
	greeted bool
	header  metadata.MD
	trailer metadata.MD
	held    *call.Message // goes with the end, when it is the only one
	sent    bool
}

// run serves the call to its end.
func (s *served) run() {
	if s.c.unary != nil && !s.head.Streaming {
		s.runUnary()
		return
	}
	err := s.c.handler.Serve(s)
	s.words.Lock()
	held, e := s.held, call.End{Header: s.header, Trailer: s.trailer}
	s.held = nil
	s.words.Unlock()
	if err == nil && held == nil && s.single && !s.sent {
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

// finish ends the call for the caller, unless it has gone already, and forgets it.
func (s *served) finish(response *call.Message, e call.End, err error) {
	defer s.cancel()
	if ctxErr := s.ctx.Err(); ctxErr != nil && err == nil {
		err = ctxErr
	}
	if err == nil && response != nil {
		response, err = s.large(response)
	}
	defer response.Free()
	s.c.mu.Lock()
	s.c.notice()
	cancelled := s.cancelled
	s.c.mu.Unlock()
	if !cancelled {
		_ = s.say(response, e, err) // fails with the connection
	}
	s.c.mu.Lock()
	delete(s.c.calls, s.id)
	s.drop()
	s.c.mu.Unlock()
}

// large sends a response that does not fit into a piece of the heap ahead of the end.
func (s *served) large(response *call.Message) (*call.Message, error) {
	data, err := response.Bytes()
	if err != nil || len(data) <= s.c.heap.maxBlock() {
		return response, err
	}
	return nil, s.write(s.ctx, response)
}

// say posts the reply or the status.
func (s *served) say(response *call.Message, e call.End, err error) error {
	if response == nil && err == nil {
		d := desc{kind: kindStatus, call: s.id}
		err = s.c.send(s.c.base, s.priority, &d, appendOutcome(nil, e, status.New(codes.OK, "")), nil)
		return s.c.explain(s.c.base, s.id, s.priority, err)
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
	s.words.Lock()
	defer s.words.Unlock()
	if s.greeted || s.header != nil {
		return status.Error(codes.Internal, "the header was sent already")
	}
	s.header = metadata.Join(md)
	if s.single && !s.sent {
		return nil // it goes with the reply, or before the second message
	}
	return s.greet()
}

// greet sends the header, if there is one and it was not sent.
func (s *served) greet() error {
	if s.greeted {
		return nil
	}
	s.greeted = true
	head := appendMetadata(nil, s.header)
	s.header = nil
	return inStatus(s.c.send(s.ctx, s.priority, &desc{kind: kindHeader, call: s.id}, head, nil))
}

// Send implements call.ServerStream. The first message of a call of one message
// each way waits for the handler to return, and goes with the status.
func (s *served) Send(m *call.Message) error {
	s.words.Lock()
	defer s.words.Unlock()
	if s.single && !s.head.Streaming && !s.sent {
		s.held, s.sent = m, true
		return nil
	}
	if held := s.held; held != nil {
		s.held = nil
		if err := s.put(held); err != nil {
			m.Free()
			return err
		}
	}
	s.sent = true
	return s.put(m)
}

func (s *served) put(m *call.Message) error {
	if s.header != nil {
		if err := s.greet(); err != nil {
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
	s.words.Lock()
	defer s.words.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}
