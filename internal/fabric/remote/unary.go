package remote

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// unary is the caller's side of a unary call. The connection's reader writes all fields except
// stream, until it sends to done.
type unary struct {
	parser
	stream *framed.Stream

	headed     bool // a header has arrived
	hasMessage bool
	data       []byte
	buf        *buffers.Buffer
	compressed bool // data is compressed
	end        call.End
	err        error // io.EOF: OK
	finished   atomic.Bool
	done       chan error // nil: err has the outcome; else the error of the stream
}

// Unary implements call.Unary.
func (c *Conn) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	service := h.Service()
	if err := c.beginCall(service); err != nil {
		if !isUnsent(err) {
			request.Free()
		}
		return nil, call.End{}, err
	}
	defer c.endCall(service)
	u := &unary{done: make(chan error, 1)}
	u.maxMessage, u.buffers = c.o.MaxMessage, &c.buffers
	err := c.sendRequest(ctx, u, h, request)
	if !isUnsent(err) {
		request.Free()
	}
	if err != nil {
		return nil, call.End{}, err
	}
	if err := u.wait(ctx, h.Deadline); err != nil {
		return nil, call.End{}, err
	}
	if u.err != io.EOF { //nolint:errorlint // it is the mark of OK
		return nil, u.end, u.err
	}
	if !u.hasMessage {
		return nil, u.end, status.Error(codes.Internal, "peer ended a unary call with OK and without a message")
	}
	return u.buffers.Message(u.buf, u.data, u.compressed), u.end, nil
}

// maxInlineRequest is the size in bytes up to which a request is sent together with the head.
const maxInlineRequest = 4 << 10

// sendRequest sends the whole call. After it has returned nil, done receives a value.
func (c *Conn) sendRequest(ctx context.Context, u *unary, h *call.Head, request *call.Message) error {
	data, err := request.Bytes()
	if err != nil || len(data) > maxLength {
		return status.Errorf(codes.Internal, "encode message of %d bytes: %v", len(data), err)
	}
	buffer := headBuffers.Get().(*[512]byte)
	defer headBuffers.Put(buffer)
	prefix := appendRecord(buffer[:0], messageType(request), len(data))
	o, err := c.newOpening(ctx, h, buffer[recordSize:recordSize])
	if err != nil {
		return err
	}
	o.Receiver, o.StreamVar = u, &u.stream
	piece := framed.Piece{Prefix: prefix, Data: data, End: true}
	if len(data) > maxInlineRequest {
		return c.sendLargeRequest(ctx, u, o, piece, h.Deadline)
	}
	if s, err := c.framed.Start(ctx, o, piece); s == nil {
		return c.openError(err)
	}
	return nil
}

// sendLargeRequest sends a request that may have to wait for credit.
func (c *Conn) sendLargeRequest(ctx context.Context, u *unary, o framed.Opening, p framed.Piece, deadline time.Time) error {
	if s, err := c.framed.Start(ctx, o, framed.Piece{Later: true}); s == nil {
		return c.openError(err)
	}
	giveUp := func() { u.stream.Reset(nil) }
	stop := context.AfterFunc(ctx, giveUp)
	defer stop()
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), giveUp)
		defer timer.Stop()
	}
	_ = u.stream.Send(p) // an error also reaches done, or giveUp caused it
	return nil
}

// wait waits for the end of the call, or resets the call when its time is up.
func (u *unary) wait(ctx context.Context, deadline time.Time) error {
	var expired <-chan time.Time
	if own, ok := ctx.Deadline(); !deadline.IsZero() && (!ok || deadline.Before(own)) {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	if expired == nil && ctx.Done() == nil {
		return <-u.done
	}
	select {
	case err := <-u.done:
		return err
	case <-expired:
		u.stream.Reset(nil)
		return status.FromContextError(context.DeadlineExceeded).Err()
	case <-ctx.Done():
		u.stream.Reset(nil)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// finish ends the call with the status that has arrived, or with err, and wakes the caller. Further
// calls do nothing.
func (u *unary) finish(err error) {
	if u.finished.Swap(true) {
		return
	}
	if u.err == nil {
		u.err = err
	}
	u.done <- nil
}

// Buffer implements framed.Receiver.
func (u *unary) Buffer(int) []byte {
	if u.finished.Load() {
		return nil
	}
	return u.space()
}

// Filled implements framed.Receiver.
func (u *unary) Filled(n int) (took int) {
	complete, err := u.filled(n)
	if err == nil && complete {
		err = u.handleRecord(u.typ())
	}
	if err != nil {
		u.stream.Refuse(resetError(err))
		u.finish(violationStatus(err))
	} else if u.isLongAhead() {
		u.stream.Expect(u.length)
	}
	return n
}

func (u *unary) handleRecord(typ recordType) (err error) {
	data, lies := u.nextRecord()
	switch typ {
	case recordHeader:
		if u.hasMessage || u.headed {
			return errLateHeader
		}
		u.headed = true
		r := fields{b: data}
		u.end.Header, err = r.metadata(), r.err
	case recordStatus:
		var ended error
		var trailer metadata.MD
		ended, trailer, err = parseStatus(data)
		if err == nil {
			u.err, u.end.Trailer = ended, trailer
		}
	default:
		if u.hasMessage {
			return errSecondResponse
		}
		u.hasMessage, u.data, u.buf, u.compressed = true, data, lies, typ == recordCompressed
	}
	return err
}

// errSecondResponse is the error of a second response.
var errSecondResponse = errors.New("a second message in a unary call")

// Ended implements framed.Receiver.
func (u *unary) Ended() (work bool) {
	if u.atBoundary() {
		u.finish(errNoStatus)
	} else {
		u.finish(status.Error(codes.Internal, "peer ended the call within a record"))
	}
	return false
}

// Work implements framed.Receiver. It does nothing.
func (u *unary) Work() {}

// Failed implements framed.Receiver.
func (u *unary) Failed(err error) {
	if !u.finished.Swap(true) {
		u.done <- statusOf(err)
	}
}
