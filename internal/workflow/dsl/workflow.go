package dsl

import "time"

// Workflow is a workflow that can run.
type Workflow struct {
	// Namespace, Name and Version are the document's.
	Namespace, Name, Version string
	// Input makes the workflow's input of what it was started with, Output its
	// output of the last task's. Nil leaves them as they are.
	Input, Output *Template
	// Timeout is how long an execution may take, zero for as long as it likes.
	Timeout time.Duration
	// Do are the tasks.
	Do *Tasks
	// Definition is the document as JSON knows it.
	Definition map[string]any
}

// Tasks run one after another.
type Tasks struct {
	List []*Task
}

// Index is the place of the task with the name, or -1.
func (t *Tasks) Index(name string) int {
	for i, task := range t.List {
		if task.Name == name {
			return i
		}
	}
	return -1
}

// Where a task may lead besides to another task's name.
const (
	Continue = "continue"
	Exit     = "exit"
	End      = "end"
)

// Task is one step of a workflow. Exactly one of the fields from Call on is set.
type Task struct {
	// Name is unique among the tasks beside it.
	Name string
	// Reference points to the task in the document (RFC 6901).
	Reference string
	// Line is where it stands in the file.
	Line int
	// Definition is the task as JSON knows it.
	Definition any

	// If says whether it runs. Nil is always.
	If *Expr
	// Input, Output and Export transform what comes in, what goes out and what
	// the workflow's context becomes. Nil leaves them as they are.
	Input, Output, Export *Template
	// Timeout is how long it may take, zero for as long as it likes.
	Timeout time.Duration
	// Then is where it leads: Continue, Exit, End or a name beside it.
	Then string

	Call   *Call
	Do     *Tasks
	Emit   *Emit
	For    *For
	Fork   *Fork
	Listen *Listen
	Raise  *Raise
	Set    *Template
	Switch []Case
	Try    *Try
	Wait   *Wait
}

// Call calls a function of the app.
type Call struct {
	Function string
	// Entry is the function's export, "" for its default.
	Entry string
	// Body is what it gets. Nil is the task's input.
	Body *Template
	// Meta are names and values that it may ask for.
	Meta *Template
}

// For runs its tasks for each item of a list.
type For struct {
	// Each and At are the names of the item and of its number.
	Each, At string
	In       *Expr
	// While is looked at before each round. Nil is always.
	While *Expr
	Do    *Tasks
}

// Fork runs its branches beside each other.
type Fork struct {
	Branches *Tasks
	// Compete lets the first that ends win, and stops the others.
	Compete bool
}

// Case is one way on from a switch.
type Case struct {
	Name string
	// When is nil for the default.
	When *Expr
	Then string
}

// Wait lets time pass.
type Wait struct {
	For time.Duration
}

// Emit publishes an event.
type Emit struct {
	// With are the event's attributes and its data.
	With *Template
}

// Listen waits for events.
type Listen struct {
	// Filters say which.
	Filters []Filter
	// All asks for one event for each filter; otherwise one event for any of
	// them is enough.
	All bool
	// Until ends the listening of any: after each event it is evaluated on the
	// events so far. Nil ends it at the first event.
	Until *Expr
	// Envelope returns whole events instead of their data.
	Envelope bool
}

// Filter says which events count.
type Filter struct {
	// With are attributes that an event must have. A text is compared as it is
	// or, should it have an operator of regular expressions, matched by it.
	With *Template
	// Data is looked at with the event's data as input. Nil lets all pass.
	Data *Expr
}

// Try catches errors of its tasks.
type Try struct {
	Do *Tasks
	// Errors says which errors are caught: values that their fields must have.
	Errors map[string]any
	// As is the variable that holds the error.
	As               string
	When, ExceptWhen *Expr
	Retry            *Retry
	// Catch is done when the error is caught and not, or no longer, retried. It
	// may be nil.
	Catch *Tasks
}

// Retry says when to try again.
type Retry struct {
	When, ExceptWhen *Expr
	Delay            time.Duration
	Backoff          Backoff
	// JitterFrom and JitterTo bound what is added to each delay.
	JitterFrom, JitterTo time.Duration
	// Attempts bounds how often it is tried again, 0 for as often as it takes.
	Attempts int
	// AttemptTimeout bounds one attempt, Limit all of them with their delays.
	AttemptTimeout, Limit time.Duration
}

// Backoff is how delays grow.
type Backoff string

// The ways.
const (
	Constant    Backoff = "constant"
	Linear      Backoff = "linear"
	Exponential Backoff = "exponential"
)

// Raise ends the task with an error.
type Raise struct {
	// Error has the fields of an Error.
	Error *Template
}

// Error is what went wrong (RFC 9457), as the DSL has it.
type Error struct {
	Type     string `json:"type"`
	Status   int    `json:"status"`
	Title    string `json:"title,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
}

func (e *Error) Error() string {
	text := e.Title
	if text == "" {
		text = e.Type
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Instance != "" {
		text = e.Instance + ": " + text
	}
	return text
}

// The standard types of errors.
const (
	errorTypes         = "https://serverlessworkflow.io/spec/1.0.0/errors/"
	ErrorConfiguration = errorTypes + "configuration"
	ErrorValidation    = errorTypes + "validation"
	ErrorExpression    = errorTypes + "expression"
	ErrorTimeout       = errorTypes + "timeout"
	ErrorCommunication = errorTypes + "communication"
	ErrorRuntime       = errorTypes + "runtime"
)
