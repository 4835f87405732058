package core

import (
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Action is an effect that the execution requests: a [Call], [ServiceCall], [RunWorkflow], [Timer],
// [Emit], [Listen], [Stop] or [Finish].
type Action interface{ action() }

// Call calls a function. Its completion is reported by a [Step].
type Call struct {
	Path string
	// Task is the task that makes the call.
	Task     *dsl.Task
	Function string
	Entry    string
	// Body is a JSON value. It holds references to values that are stored outside of
	// the log, see [ReferenceOf].
	Body any
	Meta map[string]string
}

// ServiceCall calls a service outside of the app. Its completion is reported by a [Step].
type ServiceCall struct {
	Path string
	// Task is the task that makes the call.
	Task *dsl.Task
	// Protocol is dsl.HTTP, dsl.OpenAPI or dsl.GRPC.
	Protocol string
	// With are the arguments, see dsl.Service. The value holds references as Call.Body does.
	With any
}

// RunWorkflow runs another workflow of the app. Its completion is reported by a [Step].
type RunWorkflow struct {
	Path string
	Run  *dsl.Run
	// Input is a JSON value. It holds references as Call.Body does.
	Input any
}

// TimerKind tells the timers of one task apart.
type TimerKind string

// The timers.
const (
	WaitTimer     TimerKind = "wait"
	RetryTimer    TimerKind = "retry"
	AttemptTimer  TimerKind = "attempt"
	TimeoutTimer  TimerKind = "timeout"
	DeadlineTimer TimerKind = "deadline"
)

// Timer requests a [Fired] at a time, which may be in the past.
type Timer struct {
	Path string
	Kind TimerKind
	At   time.Time
	// Attempt is that of an AttemptTimer, for its Fired.
	Attempt int
}

// Emit publishes an event. Its completion is reported by an [Emitted].
type Emit struct {
	Path  string
	Event CloudEvent
}

// Listen requests a [Received] for each event that matches a filter, from the time
// Since on, until it is stopped.
type Listen struct {
	Path    string
	Filters []Filter
	Since   time.Time
}

// Stop cancels the actions of the path and below it, "" for all actions.
type Stop struct {
	Path string
}

// Finish ends the execution.
type Finish struct {
	Finished Finished
}

func (Call) action()        {}
func (ServiceCall) action() {}
func (RunWorkflow) action() {}
func (Timer) action()       {}
func (Emit) action()        {}
func (Listen) action()      {}
func (Stop) action()        {}
func (Finish) action()      {}
