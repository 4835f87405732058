package dsl

import "time"

// Workflow is a validated workflow.
type Workflow struct {
	// Namespace, Name and Version are as in the document.
	Namespace, Name, Version string
	// Input transforms the workflow's input, Output the output of the last task. Nil
	// leaves them unchanged.
	Input, Output *Template
	// Timeout bounds an execution, zero for no limit.
	Timeout time.Duration
	// Do are the tasks.
	Do *Tasks
	// Definition is the document as a JSON value.
	Definition map[string]any
}

// Tasks is a list of tasks that run one after another.
type Tasks struct {
	List []*Task
}

// Index returns the index of the task with the name, or -1.
func (t *Tasks) Index(name string) int {
	for i, task := range t.List {
		if task.Name == name {
			return i
		}
	}
	return -1
}

// The flow directives besides another task's name.
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
	// Line is the task's line in the file.
	Line int
	// Definition is the task as a JSON value.
	Definition any

	// If is the task's condition. Nil means always.
	If *Expr
	// Input, Output and Export transform the input, the output and the workflow's
	// context. Nil leaves them unchanged.
	Input, Output, Export *Template
	// Timeout bounds the task, zero for no limit.
	Timeout time.Duration
	// Then is the task's flow directive: Continue, Exit, End or the name of a task in the same
	// list.
	Then string

	Call   *Call
	Do     *Tasks
	Emit   *Emit
	For    *For
	Fork   *Fork
	Listen *Listen
	Raise  *Raise
	Run    *Run
	Set    *Template
	Switch []Case
	Try    *Try
	Wait   *Wait
}

// Call calls a function of the app, or a service outside of it.
type Call struct {
	// Service is set for a service; the other fields describe a function.
	Service  *Service
	Function string
	// Entry is the function's export, "" for its default.
	Entry string
	// Body is the request. Nil means the task's input.
	Body *Template
	// Meta is the metadata of the call.
	Meta *Template
}

// For runs its tasks for each item of a list.
type For struct {
	// Each and At are the variables of the item and of its index.
	Each, At string
	In       *Expr
	// While is the condition before each iteration. Nil means always.
	While *Expr
	Do    *Tasks
}

// Fork runs its branches in parallel.
type Fork struct {
	Branches *Tasks
	// Compete lets the first branch that ends win, and stops the others.
	Compete bool
}

// Case is one case of a switch.
type Case struct {
	Name string
	// When is nil for the default.
	When *Expr
	Then string
}

// Wait waits for a duration.
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
	// Filters select the events.
	Filters []Filter
	// All asks for one event for each filter; otherwise one event for any of
	// them is enough.
	All bool
	// Until ends a listen for any: it is evaluated on the events so far after each
	// event. Nil ends it at the first event.
	Until *Expr
	// Envelope returns whole events instead of their data.
	Envelope bool
}

// Filter selects events.
type Filter struct {
	// With are attributes that an event must have. A text is compared for equality
	// or, if it has an operator of regular expressions, matched.
	With *Template
	// Data is a condition on the event's data. Nil matches every event.
	Data *Expr
}

// Try catches errors of its tasks.
type Try struct {
	Do *Tasks
	// Errors selects the errors to catch: values that their fields must have.
	Errors map[string]any
	// As is the variable that holds the error.
	As               string
	When, ExceptWhen *Expr
	Retry            *Retry
	// Catch runs when a caught error is not, or no longer, retried. It may be nil.
	Catch *Tasks
}

// Retry is a retry policy.
type Retry struct {
	When, ExceptWhen *Expr
	Delay            time.Duration
	Backoff          Backoff
	// JitterFrom and JitterTo bound the jitter that is added to each delay.
	JitterFrom, JitterTo time.Duration
	// Attempts bounds the retries, 0 for no limit.
	Attempts int
	// AttemptTimeout bounds one attempt, Limit all of them with their delays.
	AttemptTimeout, Limit time.Duration
}

// Backoff is how the delays of a retry policy grow.
type Backoff string

// The kinds of back-off.
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

// Error is an error in the representation of the DSL (RFC 9457).
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
	ErrorAuthorization = errorTypes + "authorization"
	ErrorValidation    = errorTypes + "validation"
	ErrorExpression    = errorTypes + "expression"
	ErrorTimeout       = errorTypes + "timeout"
	ErrorCommunication = errorTypes + "communication"
	ErrorRuntime       = errorTypes + "runtime"
)
