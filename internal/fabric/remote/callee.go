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

// callee is the callee's side of a call. It belongs to the connection's reader until it is passed
// to a handler.
type callee struct {
	inbox
	conn   *Conn
	head   *call.Head
	method *method
	ctx    callContext

	claimed atomic.Bool // a handler has the call, or no handler ever will
	timer   *time.Timer

	replyMu    sync.Mutex // guards the fields below
	headerSent bool       // the header is sent, or held
	heldReply  []byte     // reply to a call without streaming, until its status is known
	tail       metadata.MD
}

// maxHeldReply bounds the reply that is held until the status is known, so that both leave in one
// write.
const maxHeldReply = 4 << 10

var (
	errNoHandler = outboard.Errorf(outboard.NotFound, "", "peer serves no calls")
	errTooMany   = outboard.Errorf(outboard.Exhausted, "", "too many calls are still running")
	errBadHead   = outboard.Errorf(outboard.Protocol, "", "head of a call")
)

// accept begins a call of the peer.
func (c *Conn) accept(s *framed.Stream, header []byte) (framed.Receiver, error) {
	if c.o.Handler == nil {
		return nil, errNoHandler
	}
	x := &callee{conn: c}
	x.init(true, c.o.MaxMessage)
	x.account = &c.buffered
	x.stream = s
	h, err := parseHead(header, time.Now(), func(name []byte) string {
		x.method = c.methods.intern(name)
		return x.method.name
	})
	if err != nil {
		return nil, &outboard.Error{Kind: outboard.Protocol, Err: errors.Join(errBadHead, err)}
	}
	if c.peerCalls.Add(1) > c.maxPeerCalls {
		c.endPeerCall()
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
	x.buffers = &c.buffers
	x.ctx.deadline = h.Deadline
	s.SetPriority(framed.Priority(h.Priority))
	if h.Streaming {
		x.startHandler()
	}
	return x, nil
}

// errCallOver is the error of Recv after the handler has returned.
var errCallOver = status.Error(codes.Canceled, "the call is over")

// endPeerCall counts a call of the peer as over.
func (c *Conn) endPeerCall() {
	if c.peerCalls.Add(-1) == 0 {
		select {
		case c.peerIdle <- struct{}{}:
		default:
		}
	}
}

// startHandler passes the call to a handler in a goroutine of its own.
func (x *callee) startHandler() {
	if x.claimed.Swap(true) {
		return
	}
	if !x.head.Deadline.IsZero() && x.head.Streaming {
		x.timer = time.AfterFunc(time.Until(x.head.Deadline), x.deadlineExceeded)
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

// serveUnary serves the call by the UnaryHandler; inReader reports whether the connection's reader
// does so.
func (x *callee) serveUnary(inReader bool) {
	request, err := x.receiveRequest()
	if err != nil {
		x.finish(err)
		return
	}
	began := time.Now()
	response, end, err := x.conn.unary.ServeUnary(&x.ctx, x.head, request)
	x.method.observe(time.Since(began))
	defer response.Free()
	x.respond(response, end, err, inReader)
	x.release()
}

// receiveRequest returns the request of a unary call, which must be its only message.
func (x *callee) receiveRequest() (*call.Message, error) {
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

// respond sends the header, response and status of a unary call at once.
func (x *callee) respond(response *call.Message, end call.End, err error, inReader bool) {
	buffer := headBuffers.Get().(*[512]byte)
	defer headBuffers.Put(buffer)
	before := buffer[:0]
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
		return b, status.Errorf(codeOfEncoding(err), "header: %v", err)
	}
	return append(appendRecord(all[:at], recordHeader, len(all)-at-recordSize), all[at+recordSize:]...), nil
}

// finish ends the call with the status of err.
func (x *callee) finish(err error) {
	x.replyMu.Lock()
	all := appendStatus(x.heldReply, err, x.tail)
	x.heldReply = nil
	x.replyMu.Unlock()
	_ = x.stream.Send(framed.Piece{Data: all, End: true})
	x.release()
}

// release frees the resources of the call, and stops a caller that is still sending.
func (x *callee) release() {
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.head.Streaming {
		// A goroutine that the handler left behind may still wait in Recv.
		x.discard(errCallOver)
	}
	_ = x.stream.Close()
	x.ctx.end(context.Canceled)
	x.conn.endPeerCall()
}

// deadlineExceeded ends a streaming call at its deadline. Its caller has given up by then.
func (x *callee) deadlineExceeded() {
	x.ctx.end(context.DeadlineExceeded)
	err := status.FromContextError(context.DeadlineExceeded).Err()
	x.discard(err)
	x.stream.Reset(context.DeadlineExceeded)
}

// Filled implements framed.Receiver.
func (x *callee) Filled(n int) (took int) {
	took = x.inbox.Filled(n)
	if x.violated {
		x.ctx.end(context.Canceled)
		if !x.claimed.Swap(true) {
			x.conn.endPeerCall() // its request will never be complete
		}
	}
	return took
}

// Ended implements framed.Receiver.
func (x *callee) Ended() (work bool) {
	x.endOfStream()
	if x.isUnary() && x.method.mayRunInline() && !x.claimed.Swap(true) {
		return true
	}
	x.startHandler()
	return false
}

// Work implements framed.Receiver.
func (x *callee) Work() { x.serveUnary(true) }

// Failed implements framed.Receiver.
func (x *callee) Failed(err error) {
	x.ctx.end(context.Canceled)
	x.discard(callerGone(err))
	if !x.claimed.Swap(true) {
		x.conn.endPeerCall() // its request never arrived
	}
}

// callerGone returns the error of a handler's Recv and Send for a caller that is gone.
func callerGone(err error) error {
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
	x.replyMu.Lock()
	defer x.replyMu.Unlock()
	if x.headerSent {
		return status.Error(codes.Internal, "header was sent already")
	}
	header, err := appendHeader(nil, md)
	if err != nil {
		return err
	}
	x.headerSent = true
	if !x.head.Streaming && len(header) <= maxHeldReply {
		x.heldReply = header
		return nil
	}
	return x.sendError(x.stream.Send(framed.Piece{Data: header}))
}

// SetTrailer implements call.ServerStream.
func (x *callee) SetTrailer(md metadata.MD) {
	x.replyMu.Lock()
	defer x.replyMu.Unlock()
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

// hold keeps a copy of a small response until the status is known. Otherwise it returns the held
// bytes that go before the message.
func (x *callee) hold(m *call.Message) (before []byte, held bool) {
	x.replyMu.Lock()
	defer x.replyMu.Unlock()
	x.headerSent = true
	data, err := m.Bytes()
	if err == nil && !x.head.Streaming && len(x.heldReply)+recordSize+len(data) <= maxHeldReply && x.ctx.Err() == nil {
		x.heldReply = append(appendRecord(x.heldReply, messageType(m), len(data)), data...)
		return nil, true
	}
	before, x.heldReply = x.heldReply, nil
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
	return callerGone(err)
}
