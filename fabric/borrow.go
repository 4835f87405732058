package fabric

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/fabric/call"
)

// WithBorrowedRequests lets the handlers of a server's unary methods read large
// requests where they are. A bytes field of 8 KiB or more, in a request that came
// over shared memory, points into that memory. It is valid until the handler, with all
// its interceptors, has returned, and the response was marshalled: a response may hold
// the request's bytes. A handler that needs them for longer clones them. They must not be
// written to, and the process that sent them could change them meanwhile: clone before you
// check, unless the sender is trusted (calls through a node come from the node's process).
//
// Strings, smaller fields, elements of lists and maps, requests of streaming methods and
// requests that came over another transport or compressed are copied. So are fields that are
// longer than a block of the shared heap (1 MiB), and all fields while more than half of that
// heap is borrowed: a slow handler holds memory that the sender needs for its next calls.
func WithBorrowedRequests() Option { return func(o *options) { o.borrow = true } }

// A Loan holds the memory of a response that was borrowed. The zero value is
// ready. One call at a time uses it.
type Loan struct {
	mu   sync.Mutex
	held *call.Message
}

// Release gives the memory back: the response's bytes fields must not be used
// any more. It may be called when nothing is held.
func (l *Loan) Release() { l.hold(nil) }

func (l *Loan) hold(m *call.Message) {
	l.mu.Lock()
	old := l.held
	l.held = m
	l.mu.Unlock()
	old.Free()
}

// borrowCallOption is what [WithBorrowedResponse] makes.
type borrowCallOption struct {
	grpc.EmptyCallOption
	Loan *Loan
}

// WithBorrowedResponse lets the response of a unary call point into shared memory,
// under the rules of [WithBorrowedRequests]. Its bytes are valid until l is released
// or given to another call, which is when that call begins. What is not released
// is room that the peer can't use for other calls of the connection, and keeps the shared
// memory mapped in this process after the connection's end.
func WithBorrowedResponse(l *Loan) grpc.CallOption { return borrowCallOption{Loan: l} }

// borrow is unpack for bytes that may stay where they are. It returns m when v
// refers to its memory: then the caller frees it.
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
