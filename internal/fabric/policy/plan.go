package policy

import (
	"time"

	"google.golang.org/grpc/codes"
)

// A Plan is what a chain asks of whoever executes the call.
type Plan struct {
	// Delay is to be waited before the request is sent.
	Delay time.Duration
	// Timeout, where it is not zero, is how long the call may take, retries and
	// delays included. The head's deadline holds as well.
	Timeout time.Duration
	// Retry and Hedge are nil where a call is tried once. Where both are there,
	// Hedge goes before.
	Retry *Retry
	Hedge *Hedge
	// Mirror names services that get a copy of the request; what they answer is
	// dropped.
	Mirror []Mirror
	// Links delay what passes: see [Link.Delay].
	Links []*Link
	// Payload, where it is not nil, is to be sent in place of the first request.
	Payload []byte
	// Rewrites says that [Chain.Response] has something to do.
	Rewrites bool
	// Sample asks for this call to be recorded in detail.
	Sample bool
	// Trace, where it is not nil, says whether this call is traced.
	Trace *Trace
	// Logs are to be written. They are there after End.
	Logs []Log
	// Acted names the policies that did something to this call.
	Acted []string
}

// A Mirror is a service that gets a copy of a request. The method's name stays.
type Mirror struct{ Service string }

// A Trace says whether a call is traced, and what its span is given.
type Trace struct {
	Sampled    bool
	Attributes []Field
}

// A Log is a line for the log.
type Log struct {
	Policy string
	Slow   bool // it took as long as the policy calls slow
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

// Retry says whether a call that ended badly is tried again.
type Retry struct {
	// Attempts is how often a call is tried, the first time included.
	Attempts int
	// Codes are those after which it is.
	Codes []codes.Code

	step *retryStep
}

// Next says whether a call that was tried attempts times and got err is tried
// again, and how long to wait before. A yes takes from the policy's budget.
func (r *Retry) Next(x *Exchange, attempts int, err error) (wait time.Duration, ok bool) {
	return r.step.next(x, attempts, err)
}

// Hedge says when a call that was not answered yet is sent once more.
type Hedge struct {
	// Attempts is how often the call is sent at most.
	Attempts int
	// After is how long to wait between one attempt and the next.
	After time.Duration
	// Codes are those that don't end the call while other attempts run.
	Codes []codes.Code

	step *hedgeStep
}

// Next says whether a call that was sent attempts times, and has waited for After,
// is sent once more. A yes takes from the policy's budget.
func (h *Hedge) Next(x *Exchange, attempts int) bool { return h.step.next(x, attempts) }
