package policy

import (
	"time"

	"google.golang.org/grpc/codes"
)

// A Plan tells the executor of a call how to execute it.
type Plan struct {
	// Delay is the time to wait before the request is sent.
	Delay time.Duration
	// Timeout bounds the call, retries and delays included, unless it is zero. The head's
	// deadline applies as well.
	Timeout time.Duration
	// Retry and Hedge are nil if there is a single attempt. Hedge takes precedence.
	Retry *Retry
	Hedge *Hedge
	// Mirror names the services that receive a copy of the call. Their responses are dropped.
	Mirror []Mirror
	// Links delay the messages of the call: see [Link.Delay].
	Links []*Link
	// Payload, unless nil, replaces the first request.
	Payload []byte
	// Rewrites reports whether [Chain.Response] changes metadata.
	Rewrites bool
	// Sample requests a detailed record of the call.
	Sample bool
	// Trace, unless nil, decides whether the call is traced.
	Trace *Trace
	// Logs are the lines to be logged. They are set after End.
	Logs []Log
	// Acted names the policies that affected this call.
	Acted []string
}

// A Mirror is a service that receives a copy of a unary call, by its method of the same name.
type Mirror struct{ Service string }

// A Trace decides whether a call is traced, and adds attributes to its span.
type Trace struct {
	Sampled    bool
	Attributes []Field
}

// A Log is a line for the log.
type Log struct {
	Policy string
	Slow   bool // the call took at least the policy's slow
	Fields []Field
}

// A Field is a name and a value: of a log line or of a span. The value is a bool,
// an int64, a uint64, a float64, a string, a time.Duration, or JSON as a string.
type Field struct {
	Key   string
	Value any
}

func (p *Plan) reset() {
	clear(p.Links)
	clear(p.Logs)
	*p = Plan{Mirror: p.Mirror[:0], Links: p.Links[:0], Logs: p.Logs[:0], Acted: p.Acted[:0]}
}

// Retry decides whether a failed call is retried.
type Retry struct {
	// Attempts is the number of attempts, the first one included.
	Attempts int
	// Codes are the status codes that are retried.
	Codes []codes.Code

	step *retryStep
}

// Next reports whether a call that failed with err after a number of attempts is retried, and
// returns the back-off. A retry withdraws from the policy's budget.
func (r *Retry) Next(x *Exchange, attempts int, err error) (wait time.Duration, ok bool) {
	return r.step.next(x, attempts, err)
}

// Hedge decides when another attempt is sent beside the attempts that have no response yet.
type Hedge struct {
	// Attempts is the greatest number of attempts.
	Attempts int
	// After is the time between two attempts.
	After time.Duration
	// Codes are the status codes that do not end the call while other attempts run.
	Codes []codes.Code

	step *hedgeStep
}

// Next reports whether another attempt is sent after a number of attempts. It withdraws from
// the policy's budget.
func (h *Hedge) Next(x *Exchange, attempts int) bool { return h.step.next(x, attempts) }
