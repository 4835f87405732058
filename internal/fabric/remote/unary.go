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
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// unary is the caller's side of a call of one message each way. The connection's
// reader writes everything but stream, until it sends to done.
type unary struct {
	parser
	stream *framed.Stream

	headed bool // a header has come
	have   bool
	data   []byte
	lies   *room
	packed bool // data is compressed
	end    call.End
	err    error // io.EOF: OK
	over   atomic.Bool
	done   chan error // nil: see above; else it failed meanwhile
}

// Unary implements call.Unary.
func (c *Conn) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	defer request.Free()
	if !c.enter() {
		return nil, call.End{}, errDraining
	}
	defer c.ended()
	u := &unary{done: make(chan error, 1)}
	u.maxMessage, u.rooms = c.o.MaxMessage, &c.rooms
	if err := c.begin(ctx, u, h, request); err != nil {
		return nil, call.End{}, err
	}
	if err := u.wait(ctx, h.Deadline); err != nil {
		return nil, call.End{}, err
	}
	if u.err != io.EOF { //nolint:errorlint // it is the mark of OK
		return nil, u.end, u.err
	}
	if !u.have {
		return nil, u.end, status.Error(codes.Internal, "peer ended a unary call with OK and without a message")
	}
	return u.rooms.messageIn(u.lies, u.data, u.packed), u.end, nil
}

// atOnce is the size up to which a request leaves with the head.
const atOnce = 4 << 10

// begin sends the whole call. After it returned nil, done will be signalled.
func (c *Conn) begin(ctx context.Context, u *unary, h *call.Head, request *call.Message) error {
	data, err := request.Bytes()
	if err != nil || len(data) > maxLength {
		return status.Errorf(codes.Internal, "encode message of %d bytes: %v", len(data), err)
	}
	room := headRoom.Get().(*[512]byte)
	defer headRoom.Put(room)
	prefix := appendRecord(room[:0], messageType(request), len(data))
	o, err := c.opening(ctx, h, room[recordSize:recordSize])
	if err != nil {
		return err
	}
	o.Receiver, o.Stream = u, &u.stream
	piece := framed.Piece{Prefix: prefix, Data: data, End: true}
	if len(data) > atOnce {
		return c.beginLarge(ctx, u, o, piece, h.Deadline)
	}
	if s, err := c.framed.Start(ctx, o, piece); s == nil {
		return c.notBegun(err)
	}
	return nil
}

// beginLarge sends a request that may have to wait for credit.
func (c *Conn) beginLarge(ctx context.Context, u *unary, o framed.Opening, p framed.Piece, deadline time.Time) error {
	if s, err := c.framed.Start(ctx, o, framed.Piece{Later: true}); s == nil {
		return c.notBegun(err)
	}
	giveUp := func() { u.stream.Reset(nil) }
	stop := context.AfterFunc(ctx, giveUp)
	defer stop()
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), giveUp)
		defer timer.Stop()
	}
	_ = u.stream.Send(p) // an error shows in done, or is ours
	return nil
}

// wait waits for the end of the call, or gives it up.
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

// finish wakes the caller; the first reason stands.
func (u *unary) finish(err error) {
	if u.over.Swap(true) {
		return
	}
	if u.err == nil {
		u.err = err
	}
	u.done <- nil
}

// Room implements framed.Receiver.
func (u *unary) Room(int) []byte {
	if u.over.Load() {
		return nil
	}
	return u.room()
}

// Filled implements framed.Receiver.
func (u *unary) Filled(n int) (took int) {
	complete, err := u.filled(n)
	if err == nil && complete {
		err = u.record(u.typ())
	}
	if err != nil {
		u.stream.Refuse(refusal(err))
		u.finish(brokenStatus(err))
	}
	return n
}

func (u *unary) record(typ recordType) (err error) {
	data, lies := u.take()
	switch typ {
	case recordHeader:
		if u.have || u.headed {
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
		if u.have {
			return errSecond
		}
		u.have, u.data, u.lies, u.packed = true, data, lies, typ == recordCompressed
	}
	return err
}

// errSecond is a second response.
var errSecond = errors.New("a second message in a unary call")

// Ended implements framed.Receiver.
func (u *unary) Ended() (work bool) {
	if u.between() {
		u.finish(errNoStatus)
	} else {
		u.finish(status.Error(codes.Internal, "peer ended the call within a record"))
	}
	return false
}

// Work implements framed.Receiver. There is none.
func (u *unary) Work() {}

// Failed implements framed.Receiver.
func (u *unary) Failed(err error) {
	if !u.over.Swap(true) {
		u.done <- statusOf(err)
	}
}
