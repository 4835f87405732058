package gateway

import (
	"context"
	"io"
	"strconv"
)

// Trigger is the cause of a call.
type Trigger string

// The triggers.
const (
	HTTP      Trigger = "http"
	WebSocket Trigger = "websocket"
	Subject   Trigger = "subject"
	Cron      Trigger = "cron"
	// Invoke is a call by a user's command.
	Invoke Trigger = "invoke"
)

// Invoker runs functions and workflows.
type Invoker interface {
	// Invoke answers a call. The context has the call's trace and ends when no client waits for the
	// answer any more. After Invoke the context may serve the connection's next call: release the
	// resources derived from it before.
	//
	// An error's outboard.Kind decides the response, see Status. An error in whose chain is a
	// method LimitName() string names the exceeded limit: "deadline" and "memory" have their own
	// status. An answer may accompany an error, for the function's output.
	Invoke(ctx context.Context, c Call) (Answer, error)
}

// Call is a request to an Invoker.
type Call struct {
	App string
	// Function or Workflow is the target; the other is "".
	Function, Workflow string
	// Wait says that the answer is the workflow's output, not the ID of its execution.
	Wait bool
	// ID is that of the answer to an earlier attempt to start the workflow, "" for the first. It is
	// started once by all attempts.
	ID string
	// Body is the input. Its memory may be reused after Invoke returned.
	Body []byte
	// Stream has the rest of the request after Body, and takes the response if the function sends
	// it in parts; nil: Body is the whole request, and the answer the whole response. With HTTP,
	// parts are of the response message.
	Stream io.ReadWriter
	// HTTP says that Body is an HTTP/1.1 request message and that the answer must be a response
	// message.
	HTTP bool
	// Meta returns metadata of the call by name. It may be nil, and must not be used after Invoke
	// returned. The names are "method", "path", "query", "route", "remote", "trace", "subject",
	// "tick", "http.route", "ws.event", "ws.id", "ws.kind", "ws.code", the route's path parameters,
	// then headers in any case. Names with a dot, and those that an invoker adds ("execution",
	// "step", ...), are never headers.
	Meta    func(name string) (string, bool)
	Trigger Trigger
	// Route names the trigger in logs and metrics: a route's pattern, a subject, a
	// schedule.
	Route string
}

// target returns the function or workflow that the call runs.
func (c *Call) target() string {
	if c.Workflow != "" {
		return c.Workflow
	}
	return c.Function
}

// Answer is the result of a call.
type Answer struct {
	// Body is the output. It belongs to the invoker and is valid until Release.
	Body []byte
	// Streamed says that the response, or its beginning, went to the call's Stream.
	Streamed bool
	// Message says that Body is an HTTP/1.1 response message.
	Message bool
	// Type is the media type of Body if Message is false; "": detected from Body.
	Type string
	// ID identifies the call in logs; it may be "". For a workflow it is the execution, and is the
	// answer if no client waits for the output; with an error it is the execution that another attempt
	// starts, for Call.ID.
	ID string
	// Fuel is the fuel that the call was charged.
	Fuel int64
	// Stdout and Stderr are the function's output streams. They are valid until Release.
	Stdout, Stderr []byte
	// Release gives Body back. It may be nil; it is called once.
	Release func()
}

// started sets the answer of a workflow for whose output no client waits.
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
