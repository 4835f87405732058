package policy

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/outboard-run/outboard/fabric/call"
)

// An Exchange is the state of one call in a chain. The executor of the call sets the fields up
// to Request, passes it to [Chain.Begin], follows Plan, and passes it to [Chain.End]. It can
// be reused after [Exchange.Reset].
type Exchange struct {
	// Head is the call's head. A policy that changes metadata replaces it by a changed clone.
	Head *call.Head
	// Now is the time at which the call arrived.
	Now time.Time
	// Nodes is the number of nodes that share the rates of the whole pool; 0 is 1.
	Nodes int
	// Node is the caller's node, on which policies apply.
	Node string
	// Moved reports a stream that was admitted by another process and continues here.
	Moved bool
	// Rand returns 64 random bits. With nil, policies for a fraction of the calls apply to
	// none of them, and there is no jitter.
	Rand func() uint64
	// Payload returns the encoded, uncompressed request. It is called at most once, during
	// Begin, and only when a policy needs the request. Nil means that there is no request. The
	// bytes must not change while Begin runs.
	Payload func() ([]byte, error)
	// Request returns the decoded request, for callers that have it. With nil, Payload is
	// decoded by the method's descriptor. It is called at most once, during Begin, only when a
	// policy needs the request, and never for a method without a descriptor, since no
	// expression can read its request.
	Request func() (protoreflect.Message, error)

	// Plan is the result of Begin.
	Plan Plan

	chain         *Chain
	owned         *ownedHead // holds Head once that was changed; before, memory for it or nil
	changed       bool       // the request differs from the received request
	responseSteps []*rewriteStep
	payload       memo[[]byte]
	request       memo[protoreflect.Message]
	vars          variables
	acquisitions  []acquisition
}

// memo is the memoized result of a function.
type memo[T any] struct {
	done  bool
	value T
	err   error
}

// acquisition is a resource that a step acquired in Begin and releases in End.
type acquisition struct {
	owner releaser
	state any
	round uint64 // of a breaker
}

// An Outcome is the result of a call.
type Outcome struct {
	// Err is nil, or an error of package status.
	Err error
	// Now is the time at which the call ended.
	Now time.Time

	// Moved reports that the call has not ended: it continues in another process.
	Moved bool

	refused bool // rejected by a policy and never sent
}

// Code returns the status code of the outcome.
func (o Outcome) Code() codes.Code { return status.Code(o.Err) }

// Reset clears the exchange for the next call and keeps its memory. Head, Now, Rand, Payload
// and Request are cleared too.
func (x *Exchange) Reset() {
	x.Plan.reset()
	clear(x.acquisitions)
	clear(x.responseSteps)
	x.Head, x.Now, x.Rand, x.Payload, x.Request = nil, time.Time{}, nil, nil, nil
	if x.owned != nil {
		x.owned.reset()
	}
	x.chain, x.changed, x.Moved, x.Nodes, x.Node = nil, false, false, 0, ""
	x.acquisitions, x.responseSteps = x.acquisitions[:0], x.responseSteps[:0]
	x.payload, x.request, x.vars = memo[[]byte]{}, memo[protoreflect.Message]{}, variables{}
}

// bytes returns the encoded request.
func (x *Exchange) bytes() ([]byte, error) {
	if a := &x.payload; !a.done {
		a.done = true
		if x.Payload == nil {
			a.err = status.Error(codes.Internal, "the request is not at hand")
		} else {
			a.value, a.err = x.Payload()
		}
	}
	return x.payload.value, x.payload.err
}

// message returns the decoded request, with at least the fields that the chain's expressions read.
func (x *Exchange) message() (protoreflect.Message, error) {
	if a := &x.request; !a.done {
		a.done = true
		switch {
		case x.chain.input == nil:
			a.err = status.Errorf(codes.Internal, "the request's type is not known: no descriptor of %s", x.Head.Method)
		case x.Request != nil:
			a.value, a.err = x.Request()
		default:
			a.value, a.err = x.decode()
		}
	}
	return x.request.value, x.request.err
}

func (x *Exchange) decode() (protoreflect.Message, error) {
	data, err := x.bytes()
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(x.chain.input)
	if err := x.chain.selected.unmarshal(data, m); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "decode %s: %v", x.chain.input.FullName(), err)
	}
	return m, nil
}

// streamError returns why a policy for unary calls can't be evaluated for a stream: nil if its method
// is known to be a streaming one, to which the policy does not apply. A caller by plain gRPC does not
// say whether its call is unary.
func (x *Exchange) streamError() error {
	if x.chain.input != nil {
		return nil
	}
	return &evaluationError{status.Errorf(codes.Internal, "no descriptor of %s tells whether the call is unary", x.Head.Method)}
}

// chance draws at random whether a policy for a fraction of the calls applies to this call.
func (x *Exchange) chance(fraction float64) bool {
	switch {
	case fraction >= 1:
		return true
	case fraction <= 0 || x.Rand == nil:
		return false
	}
	return x.uniform() < fraction
}

// uniform returns a random number in [0, 1), or 0 without Rand.
func (x *Exchange) uniform() float64 {
	if x.Rand == nil {
		return 0
	}
	return float64(x.Rand()>>11) / (1 << 53)
}
