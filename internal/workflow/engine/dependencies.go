package engine

import (
	"context"
	"errors"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Errors of the engine's dependencies.
var (
	// ErrClaimed says that a live node runs the execution.
	ErrClaimed = errors.New("the execution is run by another node")
	// ErrNotFound says that there is no such execution, or workflow, or value.
	ErrNotFound = errors.New("no such thing")
)

// Log keeps records by key. state.Log implements it.
type Log interface {
	// Append adds records, all or none, to a key whose last record has the sequence after, 0 for a
	// key without records, and returns the sequence of the last record added. It returns
	// state.ErrConflict if the key has another last record. After any other error the records may
	// have been added or not.
	Append(ctx context.Context, key string, after uint64, data ...[]byte) (uint64, error)
	// Read returns a key's records in their order.
	Read(ctx context.Context, key string) ([]state.Record, error)
	// Heads returns the keys that begin with the prefix, each with the number of its appends.
	Heads(ctx context.Context, prefix string) (map[string]uint64, error)
	// Scan calls f with all records whose keys begin with the prefix, the records of an append at
	// once. The latest may be missing.
	Scan(ctx context.Context, prefix string, f func([]state.Record) error) error
	// Purge deletes the records of a key.
	Purge(ctx context.Context, key string) error
}

// Workflows has the apps' workflows.
type Workflows interface {
	// Workflow returns a workflow of a version of an app, 0 for the version that is deployed now,
	// and the version. An execution requests the version with which it was started for as long as
	// it runs.
	Workflow(ctx context.Context, app string, version int, name string) (*dsl.Workflow, int, error)
	// Find returns the name in the app of the workflow that a task runs.
	Find(ctx context.Context, app string, version int, run *dsl.Run) (name string, err error)
}

// Extent is the range of a value in an execution's arena on this node, in bytes.
type Extent struct {
	Offset, Size int64
}

// FunctionCall is one call of a function.
type FunctionCall struct {
	// Execution and Path are the call's idempotency key: a call that is made again after a crash
	// has the same key. The function reads them as metadata "execution" and "step".
	Execution ID
	Path      string

	App             string
	Version         int
	Function, Entry string
	// Body is the request, or At is where it lies in the execution's arena.
	Body []byte
	At   *Extent
	// Type is the body's media type.
	Type string
	Meta map[string]string
	// Node is the node that should run the call, "" for any.
	Node string
	// Workflow is the workflow of which the call is a step.
	Workflow *dsl.Workflow `json:"-"`
}

// Key returns the call's idempotency key in a syntax that buckets and file names accept. The
// function reads it as metadata "step.key".
func (c *FunctionCall) Key() string { return core.IdempotencyKey(string(c.Execution), c.Path) }

// Outcome is the result of a call.
type Outcome struct {
	// Body is the response, or At is where it lies in the execution's arena. A response that
	// expressions should see, which is JSON of at most MaxInline bytes, has to be in Body; an empty
	// one is null.
	Body []byte
	At   *Extent
	// Type is the response's media type, "" when it is not known.
	Type string
	Run  Run
}

// Run describes the run of a call.
type Run struct {
	Node string `json:"node,omitempty"`
	// Start is how the instance was obtained: "cold", "cloned" or "reset".
	Start string `json:"start,omitempty"`
	// Began is when the engine requested the call, Queued how long it waited for a slot, and Took
	// how long it ran.
	Began  time.Time     `json:"began,omitzero"`
	Queued time.Duration `json:"queued,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
	// Pointer and Copied are bytes of request and response that were passed by their place and by
	// copying.
	Pointer int64    `json:"pointer,omitempty"`
	Copied  int64    `json:"copied,omitempty"`
	Fuel    int64    `json:"fuel,omitempty"`
	Imports []Import `json:"imports,omitempty"`
}

// Import is a resource that a call used.
type Import struct {
	Name  string        `json:"name"`
	Calls int           `json:"calls"`
	Took  time.Duration `json:"took"`
	// Waited is how much of it the import itself took.
	Waited time.Duration `json:"waited,omitempty"`
	Bytes  int64         `json:"bytes,omitempty"`
}

// Functions runs functions.
type Functions interface {
	// Call ends when ctx does. An error of the class *dsl.Error is the function's, which a workflow
	// may catch by its fields; other errors count as errors of communication.
	Call(ctx context.Context, call FunctionCall) (Outcome, error)
	// Pure reports whether the function has no effects but its result: it imports nothing through
	// which its run could be observed, and it does not change the values that it receives.
	Pure(app string, version int, function string) bool
}

// ServiceCall is one call of a service outside of the app.
type ServiceCall struct {
	// Execution and Path are the call's idempotency key, as FunctionCall's.
	Execution ID
	Path      string

	App     string
	Version int
	// Protocol is dsl.HTTP, dsl.OpenAPI or dsl.GRPC, With the arguments, see dsl.Service.
	Protocol string
	With     map[string]any
	// At is where the body, With["body"], lies in the execution's arena, nil if it is not there.
	// Type is its media type.
	At   *Extent
	Type string
	// Timeout is the timeout of the task, 0 for none.
	Timeout time.Duration
}

// Key returns the call's idempotency key, as FunctionCall's.
func (c *ServiceCall) Key() string { return core.IdempotencyKey(string(c.Execution), c.Path) }

// Services calls services outside of the app.
type Services interface {
	// CallService ends when ctx does. It sends a request once: an error of the kind Busy says that
	// nothing was sent, and the call is made again. Other errors are as with Functions.Call.
	CallService(ctx context.Context, call ServiceCall) (Outcome, error)
}

// Values stores values that are too large for the log.
type Values interface {
	// Put copies bytes into the execution's arena on this node.
	Put(ctx context.Context, id ID, data []byte) (Extent, error)
	// Save stores the value at a place so that the death of this node does not lose it, and returns
	// its digest.
	Save(ctx context.Context, id ID, at Extent) (digest string, err error)
	// Load copies a saved value into the execution's arena on this node.
	Load(ctx context.Context, id ID, v core.Value) (Extent, error)
	// Bytes copies a value at a place.
	Bytes(ctx context.Context, id ID, at Extent) ([]byte, error)
	// Fetch returns a saved value of an execution, which need not run here.
	Fetch(ctx context.Context, id ID, v core.Value) ([]byte, error)
	// Release frees the execution's arena, when the execution has left this node. Saved values
	// stay.
	Release(id ID)
	// Forget removes the values of a purged execution that are saved on this node.
	Forget(ctx context.Context, id ID) error
	// Saved returns the executions with values that are saved on this node, the last of them before a
	// time.
	Saved(ctx context.Context, before time.Time) ([]ID, error)
}

// Events carries events between workflows and other parts of their apps.
type Events interface {
	// Publish delivers at least once: a consumer recognises a duplicate by source and id.
	Publish(ctx context.Context, app string, event core.CloudEvent) error
	// Subscribe calls f, one at a time, for the app's events from the time since
	// on, as far back as they are kept, until cancel is called.
	Subscribe(ctx context.Context, app string, since time.Time, f func(core.CloudEvent)) (cancel func(), err error)
}

// Claims says which node runs an execution, in the pool's table.
type Claims interface {
	// Claim makes this node the owner of an execution that has none or whose owner has left, and
	// does nothing if it is the owner. It returns ErrClaimed if the execution has another, live
	// owner.
	Claim(ctx context.Context, id ID) error
	// ClaimNew makes this node the owner of an execution whose name it has just generated, and
	// which therefore has no record.
	ClaimNew(ctx context.Context, id ID) error
	// Release gives up this node's claim, if there is one.
	Release(ctx context.Context, id ID) error
	// Orphans calls f for each execution whose owner has left, this node before
	// its last start included, until ctx ends.
	Orphans(ctx context.Context, f func(ID)) error
}
