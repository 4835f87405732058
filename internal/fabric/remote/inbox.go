package remote

import (
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/fabric/fifo"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// inbox receives the records of one direction of a call. The connection's reader fills it.
type inbox struct {
	parser        // for the reader only
	violated bool // the peer broke the protocol or a limit; for the reader only
	stream   *framed.Stream
	account  *account // counts the bytes in queue

	mu          sync.Mutex
	changed     sync.Cond // signals a change of any field below
	queue       fifo.Queue[entry]
	uncredited  int  // bytes of the arriving message for which no credit was returned yet
	headerKnown bool // the header has arrived, or never will
	header      metadata.MD
	trailer     metadata.MD
	err         error // why no more messages arrive: io.EOF, or an error of package status
	statusKnown bool  // err is the status that the peer has sent
}

// entry is a message that the call has not received yet.
type entry struct {
	data       []byte
	buf        *buffers.Buffer
	compressed bool
	uncredited int
}

func (x *inbox) init(callee bool, maxMessage int) {
	x.callee, x.maxMessage = callee, maxMessage
	x.changed.L = &x.mu
}

// Buffer implements framed.Receiver.
func (x *inbox) Buffer(int) []byte {
	if x.isOver() {
		return nil
	}
	return x.space()
}

func (x *inbox) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil && !x.statusSeen
}

// Filled implements framed.Receiver.
func (x *inbox) Filled(n int) (took int) {
	complete, err := x.filled(n)
	if err == nil && complete {
		return x.handleRecord(n)
	}
	if err != nil {
		x.rejectPeer(err)
		return 0
	}
	if x.isLongAhead() && x.awaitsMessage() {
		x.stream.Expect(x.length)
	}
	return x.creditFor(n)
}

// awaitsMessage reports whether the call has received all messages before the one that arrives.
func (x *inbox) awaitsMessage() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.queue.Len() == 0 && x.err == nil
}

// creditFor returns the credit at once for bytes of a message that the call waits for; credit for
// bytes behind an unread message is returned when that is received.
func (x *inbox) creditFor(n int) (took int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.queue.Len() > 0 {
		x.uncredited += n
		return 0
	}
	return n
}

// handleRecord processes a complete record, of which n bytes arrived last.
func (x *inbox) handleRecord(n int) (took int) {
	typ := x.typ()
	data, lies := x.nextRecord()
	if typ == recordHeader || typ == recordStatus {
		if err := x.handleControl(typ, data); err != nil {
			x.rejectPeer(err)
		}
		return n
	}
	if !x.account.reserve(len(data)) {
		x.buffers.Put(lies)
		x.rejectPeer(errNotRead)
		return n
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil { // discarded meanwhile
		x.account.release(len(data))
		x.buffers.Put(lies)
		return n
	}
	if x.queue.Len() > 0 {
		x.queue.Push(entry{data, lies, typ == recordCompressed, x.uncredited + n})
		x.uncredited = 0
		return 0
	}
	x.queue.Push(entry{data, lies, typ == recordCompressed, 0})
	x.headerKnown = true
	x.changed.Broadcast()
	return n
}

// handleControl processes a header or a status.
func (x *inbox) handleControl(typ recordType, data []byte) error {
	if typ == recordStatus {
		ended, trailer, err := parseStatus(data)
		if err == nil {
			x.setStatus(ended, trailer)
		}
		return err
	}
	r := fields{b: data}
	header := r.metadata()
	if r.err != nil {
		return r.err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.headerKnown {
		return errLateHeader
	}
	x.header, x.headerKnown = header, true
	x.changed.Broadcast()
	return nil
}

// setStatus ends the arriving messages with the status that the peer has sent, unless they have ended.
func (x *inbox) setStatus(err error, trailer metadata.MD) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err, x.trailer, x.headerKnown, x.statusKnown = err, trailer, true, true
		x.changed.Broadcast()
	}
}

// setEnd ends the arriving messages with io.EOF or an error of package status, unless they have
// ended. The peer has sent no status.
func (x *inbox) setEnd(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err, x.headerKnown = err, true
		x.changed.Broadcast()
	}
}

// discard ends the arriving messages with err, and drops the messages that the call has not
// received.
func (x *inbox) discard(err error) {
	x.mu.Lock()
	if x.err == nil || x.queue.Len() > 0 {
		x.err, x.headerKnown = err, true
	}
	for _, e := range x.queue.All() {
		x.account.release(len(e.data))
	}
	x.queue = fifo.Queue[entry]{}
	x.changed.Broadcast()
	x.mu.Unlock()
}

// rejectPeer ends a call whose peer broke the protocol or a limit.
func (x *inbox) rejectPeer(err error) {
	x.violated = true
	x.stream.Refuse(resetError(err))
	x.setEnd(violationStatus(err))
}

// Recv implements call.ClientStream and call.ServerStream.
func (x *inbox) Recv() (*call.Message, error) {
	x.mu.Lock()
	for x.queue.Len() == 0 && x.err == nil {
		x.changed.Wait()
	}
	if x.queue.Len() == 0 {
		defer x.mu.Unlock()
		return nil, x.err
	}
	e := x.queue.Pop()
	x.account.release(len(e.data))
	took := e.uncredited
	if x.queue.Len() == 0 {
		took += x.uncredited
		x.uncredited = 0
	}
	ended := x.err != nil
	x.mu.Unlock()
	if took > 0 && !ended {
		x.stream.Consumed(took)
	}
	return x.buffers.Message(e.buf, e.data, e.compressed), nil
}

// endOfStream processes the end of the peer's bytes, for Ended.
func (x *inbox) endOfStream() {
	err := errNoStatus
	if x.callee {
		err = io.EOF
	}
	if !x.atBoundary() {
		err = status.Error(codes.Internal, "peer ended the call within a record")
	}
	x.setEnd(err)
}

var (
	errNoStatus   = status.Error(codes.Internal, "peer ended the call without a status")
	errNotRead    = fmt.Errorf("%w: the connection holds too much that was not read", errTooLong)
	errLateHeader = outboard.Errorf(outboard.Protocol, "", "header after the first message")
)

// resetError returns the error that tells the peer what is wrong with its record.
func resetError(err error) error {
	kind := outboard.Protocol
	if isTooLong(err) {
		kind = outboard.Exhausted
	}
	return &outboard.Error{Kind: kind, Err: err}
}

func violationStatus(err error) error {
	if isTooLong(err) {
		return status.Errorf(codes.ResourceExhausted, "received record: %v", err)
	}
	return status.Errorf(codes.Internal, "received record: %v", err)
}
