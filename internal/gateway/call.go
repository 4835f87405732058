package gateway

import (
	"context"
	"io"
	"strconv"
)

// Trigger is what started a call.
type Trigger string

// The triggers.
const (
	HTTP      Trigger = "http"
	WebSocket Trigger = "websocket"
	Subject   Trigger = "subject"
	Cron      Trigger = "cron"
	// Invoke is a call by hand.
	Invoke Trigger = "invoke"
)

// Invoker runs functions and workflows.
type Invoker interface {
	// Invoke answers a call. The context has the call's trace and ends when no client
	// waits for the answer any more. After Invoke it may go on with the connection's next
	// call: what was derived from it has to be given back.
	//
	// An error's outboard.Kind decides the response, see Status. An error in
	// whose chain is a method LimitName() string says which limit it was about:
	// "deadline" and "memory" are told apart from others. There may be an answer
	// beside an error, for what the function wrote.
	Invoke(ctx context.Context, c Call) (Answer, error)
}

// Call is what an Invoker is asked for.
type Call struct {
	App string
	// Function or Workflow is what to run; the other is "".
	Function, Workflow string
	// Wait says that the answer is the workflow's output, not its execution's name.
	Wait bool
	// Body is the input. It may be changed or used again after Invoke returned.
	Body []byte
	// Stream has what follows Body, and takes the response in parts if the function sends it so;
	// nil: Body is all of the request, and the answer's all of the response. With HTTP, parts are
	// of the response message.
	Stream io.ReadWriter
	// HTTP says that Body is an HTTP/1.1 request message and that a response message
	// is wanted.
	HTTP bool
	// Meta returns what is known beside the body. It may be nil, and must not be used
	// after Invoke returned. Names: "method", "path", "query", "route", "remote",
	// "trace", "subject", "tick", "ws.event", "ws.id", "ws.kind", "ws.code", the
	// route's path parameters, then headers in any case. Names with a dot, and those
	// that an invoker adds ("execution", "step", ...), are never headers.
	Meta    func(name string) (string, bool)
	Trigger Trigger
	// Route names the trigger in logs and metrics: a route's pattern, a subject, a
	// schedule.
	Route string
}

// target is what the call runs.
func (c *Call) target() string {
	if c.Workflow != "" {
		return c.Workflow
	}
	return c.Function
}

// Answer is what a call brought.
type Answer struct {
	// Body is the answer. It belongs to the invoker and is valid until Release.
	Body []byte
	// Streamed says that the response, or its beginning, went to the call's Stream.
	Streamed bool
	// Message says that Body is an HTTP/1.1 response message.
	Message bool
	// Type is the media type of Body where Message is false; "": found by looking.
	Type string
	// ID names the call in logs; "" is well. Of a workflow it names the execution, and is
	// the answer where no client waits for the output.
	ID string
	// Fuel is what the call was charged.
	Fuel int64
	// Stdout and Stderr are what the function wrote. They are valid until Release.
	Stdout, Stderr []byte
	// Release gives Body back. It may be nil; it is called once.
	Release func()
}

// started fills the answer of a workflow that no client waits for.
func (a *Answer) started(c *Call) {
	if c.Workflow != "" && !c.Wait && len(a.Body) == 0 && a.ID != "" {
		a.Body = append(append([]byte(`{"execution":`), strconv.AppendQuote(nil, a.ID)...), '}')
		a.Type = "application/json"
	}
}

func (a *Answer) release() {
	if a.Release != nil {
		a.Release()
	}
}
