package core

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Event is what happened to an execution, and what its log keeps. Exactly one of
// the fields after At is set.
type Event struct {
	At time.Time `json:"at"`
	// By is who recorded it. The core does not look at it.
	By string `json:"by,omitempty"`

	Started   *Started   `json:"started,omitempty"`
	Taken     *Taken     `json:"taken,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Fired     *Fired     `json:"fired,omitempty"`
	Emitted   *Emitted   `json:"emitted,omitempty"`
	Received  *Received  `json:"received,omitempty"`
	Cancelled *Cancelled `json:"cancelled,omitempty"`
	Finished  *Finished  `json:"finished,omitempty"`
}

// Started begins an execution.
type Started struct {
	// Node is where it begins.
	Node string `json:"node,omitempty"`
	// Version is the app's version. An execution keeps to it.
	Version int `json:"version"`
	// Workflow is the workflow's name in the app.
	Workflow string `json:"workflow"`
	// Input is a JSON value, or nothing when Value is what it was started with.
	Input json.RawMessage `json:"input,omitempty"`
	Value *Value          `json:"value,omitempty"`
	// Deadline is when it is given up, zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Taken says that another node goes on. Whoever had the execution before can't
// append any more.
type Taken struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Step is the end of a call.
type Step struct {
	Path string `json:"path"`
	// Data is the result, a JSON value, or nothing when Value or Error is.
	Data  json.RawMessage `json:"data,omitempty"`
	Value *Value          `json:"value,omitempty"`
	Error *dsl.Error      `json:"error,omitempty"`
	// Run is how it went. The core does not look at it.
	Run json.RawMessage `json:"run,omitempty"`
}

// Fired says that a timer's time has come.
type Fired struct {
	Path  string    `json:"path"`
	Timer TimerKind `json:"timer"`
}

// Emitted says that an event was published.
type Emitted struct {
	Path string `json:"path"`
}

// Received brings an event to a task that listens.
type Received struct {
	Path  string     `json:"path"`
	Event CloudEvent `json:"event"`
}

// Cancelled ends an execution from outside.
type Cancelled struct {
	Reason string `json:"reason"`
}

// Finished is the last record. It repeats what the events before it led to, so
// that it can be read without the workflow.
type Finished struct {
	Status Status          `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	// Value is the output where it is too large for the log.
	Value *Value     `json:"value,omitempty"`
	Error *dsl.Error `json:"error,omitempty"`
}

// Status is the phase that an execution is in, by the DSL's names.
type Status string

// The phases.
const (
	Pending   Status = "pending"
	Running   Status = "running"
	Waiting   Status = "waiting"
	Completed Status = "completed"
	Faulted   Status = "faulted"
	Abandoned Status = "cancelled"
)

// Over reports whether nothing will happen any more.
func (s Status) Over() bool { return s == Completed || s == Faulted || s == Abandoned }

// CloudEvent is an event's attributes and its data, by their names in CloudEvents'
// JSON format: "id", "source", "type", "data", ...
type CloudEvent map[string]any

// UnmarshalJSON reads an event as expressions want it.
func (e *CloudEvent) UnmarshalJSON(text []byte) error {
	v, err := Decode(text)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("an event must be a JSON object")
	}
	*e = m
	return nil
}
