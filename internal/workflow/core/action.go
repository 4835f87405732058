package core

import (
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Action is something to do: a [Call], [Timer], [Emit], [Listen], [Stop] or [Finish].
type Action interface{ action() }

// Call calls a function. Its end is a [Step].
type Call struct {
	Path string
	// Task is what is called for.
	Task     *dsl.Task
	Function string
	Entry    string
	// Body is a JSON value. Values that are kept elsewhere are in it as
	// references, see [ReferenceOf].
	Body any
	Meta map[string]string
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

// Timer asks for a [Fired] at a time, which may have passed.
type Timer struct {
	Path string
	Kind TimerKind
	At   time.Time
}

// Emit publishes an event. Its end is an [Emitted].
type Emit struct {
	Path  string
	Event CloudEvent
}

// Listen asks for a [Received] for each event that a filter lets pass, from the
// time Since on, until it is stopped.
type Listen struct {
	Path    string
	Filters []Filter
	Since   time.Time
}

// Stop ends what was asked for at the path and below it, "" for everything.
type Stop struct {
	Path string
}

// Finish ends the execution.
type Finish struct {
	Finished Finished
}

func (Call) action()   {}
func (Timer) action()  {}
func (Emit) action()   {}
func (Listen) action() {}
func (Stop) action()   {}
func (Finish) action() {}
