package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// ID names an execution of the tenant: "APP/NAME". Its log has the key
// "TENANT/APP/NAME".
type ID string

// Options says how to run workflows.
type Options struct {
	// Tenant is whose workflows these are, Node where they run.
	Tenant, Node string

	Log       Log
	Claims    Claims
	Workflows Workflows
	Functions Functions
	Values    Values
	Events    Events

	// Running bounds the executions that run at once, Queue those that wait for
	// it. The defaults are 1,000 and 10,000.
	Running, Queue int
	// Retention is how long a finished execution can be looked at. The default
	// is a day.
	Retention time.Duration

	Registerer prometheus.Registerer
	Tracer     trace.Tracer
	Logger     *slog.Logger
}

// Engine runs the executions of one tenant on one node.
type Engine struct{}

// Open starts the engine. It takes over what is left of executions that nobody
// runs.
func Open(_ context.Context, _ Options) (*Engine, error) { return &Engine{}, nil }

// Close stops all executions where they are. Others may take them over.
func (e *Engine) Close() error { return nil }

// StartRequest asks for an execution.
type StartRequest struct {
	App, Workflow string
	// Name makes the request idempotent: there is at most one execution of the
	// app with the name. Empty is a new one.
	Name string
	// Input is a JSON value or, should Type say so or it be no JSON, bytes.
	Input []byte
	Type  string
	// Deadline is when the execution is given up, zero for never.
	Deadline time.Time
}

// Start begins an execution and returns when it is recorded. It returns
// outboard.Busy when the queue is full.
func (e *Engine) Start(_ context.Context, _ StartRequest) (ID, error) {
	return "", errors.ErrUnsupported
}

// Wait waits for an execution's end.
func (e *Engine) Wait(_ context.Context, _ ID) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

// Cancel ends an execution.
func (e *Engine) Cancel(_ context.Context, _ ID, _ string) error { return errors.ErrUnsupported }

// Get describes an execution with all of its steps.
func (e *Engine) Get(_ context.Context, _ ID) (Execution, error) {
	return Execution{}, errors.ErrUnsupported
}

// Filter says which executions to list.
type Filter struct {
	// App and Workflow are "" for all.
	App, Workflow string
	// Limit bounds how many are listed, the latest first. The default is 100.
	Limit int
}

// List describes executions without their steps.
func (e *Engine) List(_ context.Context, _ Filter) ([]Execution, error) {
	return nil, errors.ErrUnsupported
}

// Execution describes an execution.
type Execution struct {
	ID       ID
	Workflow string
	Version  int
	Status   core.Status
	// Started, Ended and Deadline are zero where there is none.
	Started, Ended, Deadline time.Time
	// Input and Output are JSON values; where they are large values instead, these are.
	Input, Output           json.RawMessage
	InputValue, OutputValue *core.Value
	Error                   *dsl.Error
	// Tenures are the nodes that had it.
	Tenures []Tenure
	// Steps are told of by Get.
	Steps []Step
}

// App is the app of the execution.
func (id ID) App() string {
	app, _, _ := strings.Cut(string(id), "/")
	return app
}

// Tenure is a time in which one node had an execution.
type Tenure struct {
	Node   string
	Since  time.Time
	Reason string
}

// Step describes one run of a task.
type Step struct {
	// Path names this run, Task points to the task in the workflow, Name is its name.
	Path, Task, Name string
	// Kind is "call", "set", "wait", ...
	Kind     string
	Function string
	// Attempt is 1 for the first try; Round counts in loops, from 0.
	Attempt, Round int
	Status         core.Status
	// Ready is when all that it waited for was there, Ended when its end was recorded.
	Ready, Ended time.Time
	Error        *dsl.Error
	// Value is the result where it is large.
	Value *core.Value
	// Run is how a call went.
	Run Run
}
