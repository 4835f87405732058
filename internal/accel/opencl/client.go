package opencl

import (
	"fmt"
	"sync/atomic"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// client is the client's end of the session: the messages that it sends, the answers and notices
// that it receives, and the error that ends the session.
type client struct {
	in     *session.Reader
	out    *session.Writer
	broken atomic.Pointer[error]
}

func (cl *client) answer(t ticket, status int32, body []byte, bulk ...[]byte) error {
	return cl.out.Send(t.header(status), body, bulk...)
}

func (cl *client) notify(op uint16, body []byte, bulk ...[]byte) error {
	return cl.out.Send(session.Header{Op: op}, body, bulk...)
}

// fail ends the session. Any goroutine may call it.
func (cl *client) fail(err error) {
	if err != nil {
		cl.broken.CompareAndSwap(nil, &err)
	}
}

// ticket identifies a call whose reply is sent after the dispatcher has gone on.
type ticket struct {
	op   uint16
	call uint32
}

func (m *call) ticket() ticket { return ticket{op: m.m.Op, call: m.m.Call} }

func (t ticket) header(status int32) session.Header {
	return session.Header{Op: t.op, Flags: session.IsReply, Call: t.call, Status: status}
}

type message = session.Message

// alone reports whether the dispatcher may block in the driver on behalf of m.
func alone(m *session.Message) bool { return m.Flags&session.Alone != 0 }

func malformed(m *session.Message, err error) error {
	return outboard.Errorf(outboard.Protocol, fmt.Sprintf("message %d, op %#x", m.Serial, m.Op), "%w", err)
}

func unknownOp(m *session.Message) error {
	return outboard.Errorf(outboard.Protocol, fmt.Sprintf("message %d", m.Serial), "no op has the number %#x", m.Op)
}
