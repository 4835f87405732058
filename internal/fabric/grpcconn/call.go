package grpcconn

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// FreeBytes is how many bytes a call may hold that are not counted, since most messages are smaller.
const FreeBytes = 16 << 10

// messageHead is the size of the head of a gRPC message: a flag, and the length in 4 bytes.
const messageHead = 5

// A Call is a call on a connection, whose lock guards it.
type Call struct {
	conn   *Conn
	client Client

	cancel    context.CancelFunc // nil: the call was not opened
	transport statusWriter       // since the handler began
	failed    error              // why the server has ended the call, as gRPC's error
	reporting sync.WaitGroup     // writes failed to the client

	receiving bool // the handler waits for a message
	sending   int  // how many messages the handler waits to send
	received  bool // the request is complete
	running   bool // the handler runs
	handled   bool // the handler has returned
	ended     bool // the response is sent, or the client has gone

	read     int64 // bytes of messages that the handler has not received yet
	held     int64 // bytes of messages that the handler has, and of responses that are not sent
	reserved int64 // what is reserved for read and held

	responses responses // the messages that the handler sends

	recent int           // bytes sent or received since the last sweep
	left   time.Duration // how long the client may make the server wait
}

// A statusWriter is grpc-go's stream: the first status that is written to it ends the call and its
// context.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// reserve reserves the bytes that the call holds beyond FreeBytes, or releases what it no longer
// holds.
func (call *Call) reserve() error {
	if call.cancel == nil || call.isOver() {
		return nil
	}
	more := max(0, call.read+call.held-FreeBytes) - call.reserved
	switch {
	case more > 0:
		if err := call.conn.reserve(call.client.Name, more); err != nil {
			return err
		}
	case more < 0:
		call.conn.unreserve(call.client.Name, -more)
	}
	call.reserved += more
	return nil
}

// receivedBytes counts bytes of a message that arrives.
func (call *Call) receivedBytes(n int) {
	call.recent += n
	if call.failed != nil {
		return // the server drops them
	}
	call.read += int64(n)
	if err := call.reserve(); err != nil {
		call.fail(Memory, err)
	}
}

// deliver counts a message for the handler: it took wire bytes while it arrived, and has size bytes
// now. It returns the error by which the call ends, if it does.
func (call *Call) deliver(wire, size int64) error {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.receiving = false
	call.read = max(0, call.read-wire-messageHead)
	return call.hold(size)
}

// hold counts n bytes until Free, or until the call is over. It returns the error by which the call
// ends, if it does.
func (call *Call) hold(n int64) error {
	if call.failed != nil {
		return call.failed
	}
	call.held += n
	if err := call.reserve(); err != nil {
		call.held -= n
		call.fail(Memory, err)
	}
	return call.failed
}

// free releases bytes of a message that the handler had. It may be called after the call is over.
func (call *Call) free(n int64) {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.unhold(n)
}

func (call *Call) unhold(n int64) {
	call.held -= n
	_ = call.reserve() // it releases
}

// fail ends the call: its client gets the error, and its handler's context ends.
func (call *Call) fail(reason Reason, err error) {
	if call.failed != nil || call.handled || call.ended || call.cancel == nil {
		return
	}
	call.failed = call.conn.options.Refuse(err)
	call.conn.options.refused(reason, err)
	if call.transport == nil { // start returns the error
		call.cancel()
		return
	}
	// WriteStatus takes locks that are held while the tap handler runs.
	call.reporting.Go(func() {
		_ = call.transport.WriteStatus(status.Convert(call.failed))
		call.cancel()
	})
}

// isOver reports whether the call has ended and its handler does not run.
func (call *Call) isOver() bool { return call.ended && !call.running }

// release releases what the call holds if it is over.
func (call *Call) release() {
	if !call.isOver() {
		return
	}
	if call.reserved > 0 {
		call.conn.unreserve(call.client.Name, call.reserved)
		call.reserved = 0
	}
	if call.cancel != nil {
		call.cancel()
	}
	if call.client.Ended != nil {
		call.client.Ended()
		call.client.Ended = nil
	}
}

// start is called before the call's handler runs. It returns the error by which the call has ended
// already, if it has.
func (call *Call) start(ctx context.Context) error {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.running = true
	call.transport, _ = grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	return call.failed
}

// finish is called when the call's handler has returned. It returns the error by which the server
// has ended the call, if it has.
func (call *Call) finish() error {
	call.conn.mu.Lock()
	call.running, call.handled = false, true
	call.left = call.conn.options.patience()
	call.release()
	failed := call.failed
	call.conn.mu.Unlock()
	call.reporting.Wait()
	return failed
}

// awaitMessage is called before the handler waits for a message.
func (call *Call) awaitMessage() {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.receiving, call.left = true, call.conn.options.patience()
}

// beginSend is called before the handler sends a message, of which n bytes count until it is sent. It
// returns the error by which the call ends, if it does.
func (call *Call) beginSend(n int64) error {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	if err := call.hold(n); err != nil {
		return err
	}
	call.responses.add(n)
	call.sending++
	call.left = call.conn.options.patience()
	return nil
}

// endSend is called when grpc-go has accepted the message.
func (call *Call) endSend() {
	call.conn.mu.Lock()
	defer call.conn.mu.Unlock()
	call.sending--
}

// sentBytes counts bytes of responses that are sent.
func (call *Call) sentBytes(b []byte) {
	call.recent += len(b)
	if n := call.responses.sent(b); n > 0 {
		call.unhold(n)
	}
}
