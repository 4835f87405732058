package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// callee is the callee's side of a call. The reader has it until it gives it to
// a handler.
type callee struct {
	inbox
	conn   *Conn
	head   *call.Head
	method *method
	ctx    callContext

	claimed atomic.Bool // a handler has it, or never will
	timer   *time.Timer

	reply sync.Mutex // guards what follows
	said  bool       // the header is sent, or held
	held  []byte     // of a call without streaming, until its status is known
	tail  metadata.MD
}

// mostHeld bounds what waits for the status, so that all leaves in one write.
const mostHeld = 4 << 10

var (
	errRefused  = outboard.Errorf(outboard.NotFound, "", "peer serves no calls")
	errTooMany  = outboard.Errorf(outboard.Exhausted, "", "too many calls are still running")
	errNoMethod = outboard.Errorf(outboard.Protocol, "", "head of a call")
)

// accept begins a call of the peer.
func (c *Conn) accept(s *framed.Stream, header []byte) (framed.Receiver, error) {
	if c.o.Handler == nil {
		return nil, errRefused
	}
	x := &callee{conn: c}
	x.init(true, c.o.MaxMessage)
	x.stream = s
	h, err := parseHead(header, time.Now(), func(name []byte) string {
		x.method = c.methods.of(name)
		return x.method.name
	})
	if err != nil {
		return nil, &outboard.Error{Kind: outboard.Protocol, Err: errors.Join(errNoMethod, err)}
	}
	if c.running.Add(1) > c.limit {
		c.leave()
		return nil, errTooMany
	}
	if !c.o.Trusted {
		h.Tenant, h.Peer = "", ""
	}
	if h.Tenant == "" {
		h.Tenant = c.o.Tenant
	}
	if h.Peer == "" {
		h.Peer = c.o.Peer
	}
	x.head = h
	// Who forwards a unary call may want to send its request once more, and keeps it for
	// that unless it has to be given back.
	if h.Streaming {
		x.rooms = &c.rooms
	}
	x.ctx.deadline = h.Deadline
	s.SetPriority(framed.Priority(h.Priority))
	if h.Streaming {
		x.start()
	}
	return x, nil
}

// errOver is what Recv says when the handler has returned.
var errOver = status.Error(codes.Canceled, "the call is over")

// leave counts a call of the peer as over.
func (c *Conn) leave() {
	if c.running.Add(-1) == 0 {
		select {
		case c.quiet <- struct{}{}:
		default:
		}
	}
}

// start gives the call to a handler in a goroutine of its own.
func (x *callee) start() {
	if x.claimed.Swap(true) {
		return
	}
	if !x.head.Deadline.IsZero() && x.head.Streaming {
		x.timer = time.AfterFunc(time.Until(x.head.Deadline), x.expired)
	}
	x.conn.handlers.Go(x.serve)
}

func (x *callee) serve() {
	if x.isUnary() {
		x.serveUnary(false)
		return
	}
	err := x.conn.o.Handler.Serve(x)
	x.finish(err)
}

func (x *callee) isUnary() bool { return x.conn.unary != nil && !x.head.Streaming }

// serveUnary serves the call on the short way; inReader says in which goroutine.
func (x *callee) serveUnary(inReader bool) {
	request, err := x.single()
	if err != nil {
		x.finish(err)
		return
	}
	began := time.Now()
	response, end, err := x.conn.unary.ServeUnary(&x.ctx, x.head, request)
	x.method.took(time.Since(began))
	defer response.Free()
	x.answer(response, end, err, inReader)
	x.over()
}

// single is the request of a unary call, which has ended.
func (x *callee) single() (*call.Message, error) {
	m, err := x.Recv()
	if err == nil {
		if _, err = x.Recv(); errors.Is(err, io.EOF) {
			return m, nil
		}
		m.Free()
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = status.Error(codes.Internal, "a unary call needs exactly one message")
	}
	return nil, err
}

// answer sends all of a unary call's end at once.
func (x *callee) answer(response *call.Message, end call.End, err error, inReader bool) {
	room := headRoom.Get().(*[512]byte)
	defer headRoom.Put(room)
	before := room[:0]
	if len(end.Header) > 0 {
		var headerErr error
		if before, headerErr = appendHeader(before, end.Header); headerErr != nil && err == nil {
			err = headerErr
		}
	}
	var data []byte
	if err == nil && response != nil {
		data, err = response.Bytes()
	}
	if err == nil && response != nil {
		before = appendRecord(before, messageType(response), len(data))
	} else {
		data = nil
	}
	n := len(before)
	all := appendStatus(before, err, end.Trailer)
	_ = x.stream.Send(framed.Piece{Prefix: all[:n], Data: data, Suffix: all[n:], End: true, Later: inReader})
}

func appendHeader(b []byte, md metadata.MD) ([]byte, error) {
	at := len(b)
	all, err := appendMetadata(appendRecord(b, recordHeader, 0), md)
	if err != nil {
		return b, status.Errorf(codes.Internal, "header: %v", err)
	}
	return append(appendRecord(all[:at], recordHeader, len(all)-at-recordSize), all[at+recordSize:]...), nil
}

// finish ends the call with the status of err.
func (x *callee) finish(err error) {
	x.reply.Lock()
	all := appendStatus(x.held, err, x.tail)
	x.held = nil
	x.reply.Unlock()
	_ = x.stream.Send(framed.Piece{Data: all, End: true})
	x.over()
}

// over frees what the call held, and stops a caller that is still sending.
func (x *callee) over() {
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.head.Streaming {
		// A goroutine that the handler left behind may still wait in Recv.
		x.drop(errOver)
	}
	_ = x.stream.Close()
	x.ctx.end(context.Canceled)
	x.conn.leave()
}

// expired is the deadline of a streaming call, whose caller has given up by then.
func (x *callee) expired() {
	x.ctx.end(context.DeadlineExceeded)
	err := status.FromContextError(context.DeadlineExceeded).Err()
	x.drop(err)
	x.stream.Reset(context.DeadlineExceeded)
}

// Filled implements framed.Receiver.
func (x *callee) Filled(n int) (took int) {
	took = x.inbox.Filled(n)
	if x.bad {
		x.ctx.end(context.Canceled)
		if !x.claimed.Swap(true) {
			x.conn.leave() // its request will never be complete
		}
	}
	return took
}

// Ended implements framed.Receiver.
func (x *callee) Ended() (work bool) {
	x.finished()
	if x.isUnary() && x.method.quick() && !x.claimed.Swap(true) {
		return true
	}
	x.start()
	return false
}

// Work implements framed.Receiver.
func (x *callee) Work() { x.serveUnary(true) }

// Failed implements framed.Receiver.
func (x *callee) Failed(err error) {
	x.ctx.end(context.Canceled)
	x.drop(goneStatus(err))
	if !x.claimed.Swap(true) {
		x.conn.leave() // its request never came
	}
}

// goneStatus is what Recv and Send of a handler say of a caller that is gone.
func goneStatus(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return status.Error(codes.Canceled, "the caller has given up")
	}
	return status.Errorf(codes.Canceled, "the caller is gone: %v", err)
}

// Context implements call.ServerStream.
func (x *callee) Context() context.Context { return &x.ctx }

// Head implements call.ServerStream.
func (x *callee) Head() *call.Head { return x.head }

// SendHeader implements call.ServerStream.
func (x *callee) SendHeader(md metadata.MD) error {
	x.reply.Lock()
	defer x.reply.Unlock()
	if x.said {
		return status.Error(codes.Internal, "header was sent already")
	}
	header, err := appendHeader(nil, md)
	if err != nil {
		return err
	}
	x.said = true
	if !x.head.Streaming && len(header) <= mostHeld {
		x.held = header
		return nil
	}
	return x.sendError(x.stream.Send(framed.Piece{Data: header}))
}

// SetTrailer implements call.ServerStream.
func (x *callee) SetTrailer(md metadata.MD) {
	x.reply.Lock()
	defer x.reply.Unlock()
	x.tail = metadata.Join(x.tail, md)
}

// Send implements call.ServerStream.
func (x *callee) Send(m *call.Message) error {
	defer m.Free()
	before, held := x.hold(m)
	if held {
		return nil
	}
	return x.sendError(sendMessage(x.stream, before, m, nil, false))
}

// hold keeps a copy of a small response until the status is known. Otherwise it
// returns what goes before the message.
func (x *callee) hold(m *call.Message) (before []byte, held bool) {
	x.reply.Lock()
	defer x.reply.Unlock()
	x.said = true
	data, err := m.Bytes()
	if err == nil && !x.head.Streaming && len(x.held)+recordSize+len(data) <= mostHeld && x.ctx.Err() == nil {
		x.held = append(appendRecord(x.held, messageType(m), len(data)), data...)
		return nil, true
	}
	before, x.held = x.held, nil
	return before, false
}

func (x *callee) sendError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if cause := x.ctx.Err(); cause != nil {
		return status.FromContextError(cause).Err()
	}
	return goneStatus(err)
}
