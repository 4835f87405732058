package fabric

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/fabric/call"
)

// WithBorrowedRequests lets the handlers of a server's unary methods read large requests in place.
// A bytes field of 8 KiB or more, in a request that came over shared memory, points into that
// memory, and so does an element of that size in the request's own lists of bytes. It is valid until
// the handler, with all its interceptors, has returned, and the response was marshalled: a response
// may hold the request's bytes. A handler that needs the bytes for
// longer clones them. It must not write to them, and the process that sent them can change them
// meanwhile: clone before you check, unless the sender is trusted (calls through a node come from
// the node's process).
//
// Strings, smaller fields, elements of maps and of other lists, requests of streaming methods and
// requests that came over another transport or compressed are copied. So are fields that are longer
// than a block of the shared heap (1 MiB), and all fields while more than half of that heap is
// borrowed: a slow handler holds memory that the sender needs for its next calls.
func WithBorrowedRequests() Option { return func(o *options) { o.borrow = true } }

// A Loan holds the memory of a borrowed response. The zero value is ready. One call at a time may
// use it.
type Loan struct {
	mu   sync.Mutex
	held *call.Message
}

// Release gives the memory back: the response's bytes fields must not be used any more. Without a
// borrowed response it does nothing.
func (l *Loan) Release() { l.hold(nil) }

func (l *Loan) hold(m *call.Message) {
	l.mu.Lock()
	old := l.held
	l.held = m
	l.mu.Unlock()
	old.Free()
}

// borrowCallOption is the call option that [WithBorrowedResponse] returns.
type borrowCallOption struct {
	grpc.EmptyCallOption
	Loan *Loan
}

// WithBorrowedResponse lets the response of a unary call point into shared memory, under the rules
// of [WithBorrowedRequests]. Its bytes are valid until l is released or passed to another call,
// which releases it as that call begins. The peer can't use unreleased memory for other calls of
// the connection, and the memory stays mapped in this process after the connection's end.
func WithBorrowedResponse(l *Loan) grpc.CallOption { return borrowCallOption{Loan: l} }

// borrow is unpack for bytes that may stay in place. It returns m if v refers to its memory: then
// the caller frees m.
func (f *codecState) borrow(m *call.Message, v any) (*call.Message, error) {
	to := protoOf(v)
	if !f.proto || to == nil || m.Compressed || m.Value != nil || len(m.Data) < borrowable {
		return nil, f.unpack(m, v)
	}
	if err := f.checkReceive(len(m.Data)); err != nil {
		m.Free()
		return nil, err
	}
	s, ok := split(m.Data, to.ProtoReflect().Descriptor(), borrowable)
	if !ok {
		return nil, f.unpack(m, v)
	}
	if err := f.unmarshal(s.rest, v); err != nil {
		m.Free()
		return nil, err
	}
	s.join(to.ProtoReflect())
	return m, nil
}
