package core

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Event is one record of an execution's log. Exactly one of the fields after At is set.
type Event struct {
	At time.Time `json:"at"`
	// By is the node that recorded the event. The core ignores it.
	By string `json:"by,omitempty"`

	Started   *Started   `json:"started,omitempty"`
	TakenOver *TakenOver `json:"taken,omitempty"`
	Step      *Step      `json:"step,omitempty"`
	Fired     *Fired     `json:"fired,omitempty"`
	Emitted   *Emitted   `json:"emitted,omitempty"`
	Received  *Received  `json:"received,omitempty"`
	Cancelled *Cancelled `json:"cancelled,omitempty"`
	Finished  *Finished  `json:"finished,omitempty"`
}

// Started begins an execution.
type Started struct {
	// Node is the node on which the execution begins.
	Node string `json:"node,omitempty"`
	// Version is the app's version, which stays the same for the whole execution.
	Version int `json:"version"`
	// Workflow is the workflow's name in the app.
	Workflow string `json:"workflow"`
	// Input is a JSON value. It is empty when Value is the input.
	Input json.RawMessage `json:"input,omitempty"`
	Value *Value          `json:"value,omitempty"`
	// Deadline is when the execution is cancelled, zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
	// Parent is the execution that runs this one as a task, "" for none, and Depth the number of
	// executions above this one. The core ignores them.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth,omitempty"`
}

// TakenOver records that another node has taken the execution over. It fences the previous
// node, whose appends fail from then on.
type TakenOver struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Step reports the completion of a call.
type Step struct {
	Path string `json:"path"`
	// Data is the result, a JSON value. It is empty when Value or Error is set.
	Data  json.RawMessage `json:"data,omitempty"`
	Value *Value          `json:"value,omitempty"`
	Error *dsl.Error      `json:"error,omitempty"`
	// Run describes the call. The core ignores it.
	Run json.RawMessage `json:"run,omitempty"`
}

// Fired reports that a timer has expired.
type Fired struct {
	Path  string    `json:"path"`
	Timer TimerKind `json:"timer"`
	// Attempt is the attempt that an AttemptTimer is for, 0 for other timers.
	Attempt int `json:"attempt,omitempty"`
}

// Emitted reports that an event was published.
type Emitted struct {
	Path string `json:"path"`
}

// Received delivers an event to a task that listens.
type Received struct {
	Path  string     `json:"path"`
	Event CloudEvent `json:"event"`
}

// Cancelled cancels an execution.
type Cancelled struct {
	Reason string `json:"reason"`
}

// Finished is the last record. It holds the outcome of the events before it, so that a
// reader does not need the workflow.
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

// Over reports whether the phase is final.
func (s Status) Over() bool { return s == Completed || s == Faulted || s == Abandoned }

// CloudEvent is an event's attributes and its data, by their names in CloudEvents'
// JSON format: "id", "source", "type", "data", ...
type CloudEvent map[string]any

// UnmarshalJSON decodes an event into the types that expressions use.
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
