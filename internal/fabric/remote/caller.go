package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

func isTooLong(err error) bool { return errors.Is(err, errTooLong) }

// codeOfEncoding returns the code of a call whose metadata cannot be sent.
func codeOfEncoding(err error) codes.Code {
	if isTooLong(err) {
		return codes.ResourceExhausted
	}
	return codes.Internal
}

// The errors of calls that the peer never saw.
var (
	errDraining error = unsentError{"peer takes no more calls on this connection"}
	errClosed   error = unsentError{"connection is closed"}
)

// unsentError is the error of a call that the peer never saw, so that the call can be made on
// another connection.
type unsentError struct{ text string }

func (u unsentError) Error() string { return u.text }

// GRPCStatus implements the interface of package status.
func (u unsentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, u.Error()) }

// Unsent reports that the callee never saw the call.
func (unsentError) Unsent() bool { return true }

func isUnsent(err error) bool {
	var u unsentError
	return errors.As(err, &u)
}

// newOpening returns the opening of a call's stream. The head is appended to b.
func (c *Conn) newOpening(ctx context.Context, h *call.Head, b []byte) (framed.Opening, error) {
	if err := ctx.Err(); err != nil {
		return framed.Opening{}, status.FromContextError(err).Err()
	}
	if c.drained.Load() {
		return framed.Opening{}, errDraining
	}
	head, err := appendHead(b, h, time.Now(), c.o.Trusted)
	if err == nil && len(head) > maxHead {
		err = errTooLong
	}
	if err != nil {
		return framed.Opening{}, status.Errorf(codeOfEncoding(err), "head of the call: %v", err)
	}
	return framed.Opening{Method: callMethod, Header: head, Priority: framed.Priority(h.Priority), CancelIf: &c.drained}, nil
}

// openError returns the status of a call whose stream could not be opened.
func (c *Conn) openError(err error) error {
	switch ended := c.Err(); {
	case ended != nil && errors.Is(err, ended) && !errors.Is(err, framed.ErrClosed):
		return unsentError{err.Error()}
	case !errors.Is(err, framed.ErrClosed):
		return statusOf(err)
	case ended == nil && c.drained.Load():
		return errDraining
	}
	return errClosed
}

// headBuffers is a pool of buffers for encoded heads.
var headBuffers = sync.Pool{New: func() any { return new([512]byte) }}

// caller is the caller's side of a call.
type caller struct {
	inbox
	ctx      context.Context //nolint:containedctx // it is the call's
	deadline time.Time
	unwatch  func() bool
	conn     *Conn
	endOnce  sync.Once
	service  string
}

// Open implements call.Transport.
func (c *Conn) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	buffer := headBuffers.Get().(*[512]byte)
	defer headBuffers.Put(buffer)
	o, err := c.newOpening(ctx, h, buffer[:0])
	if err != nil {
		return nil, err
	}
	s := &caller{ctx: ctx, deadline: h.Deadline, conn: c}
	s.init(false, c.o.MaxMessage)
	s.account, s.service = &c.buffered, h.Service()
	s.buffers = &c.buffers
	o.Receiver, o.StreamVar = s, &s.stream
	if err := c.beginCall(s.service); err != nil {
		return nil, err
	}
	if opened, err := c.framed.Start(ctx, o, framed.Piece{}); opened == nil {
		c.endCall(s.service)
		return nil, c.openError(err)
	}
	s.watch(h.Deadline)
	return s, nil
}

// watch ends the call with its context or at its deadline.
func (s *caller) watch(deadline time.Time) {
	stop := func() bool { return true }
	if s.ctx.Done() != nil {
		stop = context.AfterFunc(s.ctx, func() { s.cancel(status.FromContextError(s.ctx.Err()).Err()) })
	}
	if own, ok := s.ctx.Deadline(); !deadline.IsZero() && (!ok || deadline.Before(own)) {
		timer := time.AfterFunc(time.Until(deadline), func() {
			s.cancel(status.FromContextError(context.DeadlineExceeded).Err())
		})
		inner := stop
		stop = func() bool { timer.Stop(); return inner() }
	}
	s.mu.Lock()
	s.unwatch = stop
	over := s.err != nil
	s.mu.Unlock()
	if over {
		stop()
	}
}

func (s *caller) cancel(err error) {
	s.discard(err)
	s.stream.Reset(nil)
	s.endOnce.Do(func() { s.conn.endCall(s.service) })
}

// release frees the resources of the call once no more records can arrive.
func (s *caller) release() {
	s.mu.Lock()
	stop := s.unwatch
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.endOnce.Do(func() { s.conn.endCall(s.service) })
}

// Send implements call.ClientStream.
func (s *caller) Send(m *call.Message) error {
	defer m.Free()
	if err := sendMessage(s.stream, nil, m, nil, false); err != nil {
		return s.sendError(err)
	}
	return nil
}

// sendError returns io.EOF if the call has ended: Recv returns its status.
func (s *caller) sendError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return io.EOF
}

// CloseSend implements call.ClientStream.
func (s *caller) CloseSend() error {
	_ = s.stream.CloseWrite() // if the call has ended, Recv returns its status
	return nil
}

// Header implements call.ClientStream.
func (s *caller) Header() (metadata.MD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.headerKnown {
		s.changed.Wait()
	}
	if s.header == nil && s.err != nil && !errors.Is(s.err, io.EOF) && s.queue.Len() == 0 && !s.statusKnown {
		return nil, s.err
	}
	return s.header, nil
}

// Trailer implements call.ClientStream.
func (s *caller) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trailer
}

// Ended implements framed.Receiver.
func (s *caller) Ended() (work bool) {
	s.endOfStream()
	s.release()
	return false
}

// Work implements framed.Receiver. It does nothing.
func (s *caller) Work() {}

// Failed implements framed.Receiver.
func (s *caller) Failed(err error) {
	if pastDeadline(s.ctx, s.deadline) {
		err = context.DeadlineExceeded
	}
	s.setEnd(statusOf(err))
	s.release()
}

// pastDeadline reports whether the deadline of a call has passed: then that is why the call ended,
// whichever event was seen first.
func pastDeadline(ctx context.Context, deadline time.Time) bool {
	now := time.Now()
	own, ok := ctx.Deadline()
	return ok && !now.Before(own) || !deadline.IsZero() && !now.Before(deadline)
}

// sendMessage sends one message between the bytes of before and after. An error of package status
// means that nothing was sent.
func sendMessage(s *framed.Stream, before []byte, m *call.Message, after []byte, end bool) error {
	data, err := m.Bytes()
	if err != nil {
		return status.Errorf(codes.Internal, "encode message: %v", err)
	}
	if len(data) > maxLength {
		return status.Errorf(codes.ResourceExhausted, "message of %d bytes: at most %d", len(data), maxLength)
	}
	return s.Send(framed.Piece{Prefix: appendRecord(before, messageType(m), len(data)), Data: data, Suffix: after, End: end})
}

func messageType(m *call.Message) recordType {
	if m.Compressed {
		return recordCompressed
	}
	return recordMessage
}
