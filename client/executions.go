package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// The states of an execution and of a step, as Serverless Workflow names them.
const (
	StatePending   = "pending"
	StateRunning   = "running"
	StateWaiting   = "waiting" // for a time or an event
	StateCompleted = "completed"
	StateFaulted   = "faulted"
	StateCancelled = "cancelled"
)

// An Execution is a run of a workflow.
type Execution struct {
	// ID names it in the pool: "APP/ID".
	ID       string `json:"id"`
	App      string `json:"app"`
	Workflow string `json:"workflow"`
	// Version is that of the app when it began; it ends with it.
	Version int    `json:"version"`
	State   string `json:"state"`
	// Node runs it, or ran it last.
	Node    outboard.NodeID `json:"node"`
	Started time.Time       `json:"started"`
	Ended   time.Time       `json:"ended,omitzero"`
	// Output is there when it is completed, Fault when it is faulted.
	Output json.RawMessage `json:"output,omitempty"`
	Fault  *Fault          `json:"fault,omitempty"`
	// The rest is told of one execution, not in lists.
	Input json.RawMessage `json:"input,omitempty"`
	Steps []Step          `json:"steps,omitempty"`
	// Nodes are those that had it, in their order, with the reason of each change.
	Nodes []Tenure `json:"nodes,omitempty"`
	// Why explains the placement, where it was asked for.
	Why []Reason `json:"why,omitempty"`
}

// A Fault is why an execution or step failed: an error of Serverless Workflow, which
// is a problem document (RFC 9457).
type Fault struct {
	Type     string `json:"type"`
	Status   int    `json:"status"`
	Title    string `json:"title,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// A Step is one attempt of one task.
type Step struct {
	// Task is where it stands in the workflow, "/do/2/resize"; Name is its name.
	Task string `json:"task"`
	Name string `json:"name"`
	// Kind is the task's: "call", "set", "wait", ...
	Kind     string `json:"kind"`
	Function string `json:"function,omitempty"`
	// Attempt is 1 for the first; Iteration counts in loops, from 0.
	Attempt   int             `json:"attempt"`
	Iteration int             `json:"iteration,omitempty"`
	State     string          `json:"state"`
	Node      outboard.NodeID `json:"node"`
	// Ready is when all that it waited for was there, Started when it ran.
	Ready   time.Time `json:"ready,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Took    Duration  `json:"took"`
	// Start is how its call came by its instance: "cold", "clone" or "reset".
	Start string `json:"start,omitempty"`
	// Pointer and Copied are the bytes that it was handed, and handed on, by pointer
	// and by copy.
	Pointer outboard.Bytes `json:"pointer"`
	Copied  outboard.Bytes `json:"copied"`
	Fuel    int64          `json:"fuel,omitempty"`
	Imports []ImportUse    `json:"imports,omitempty"`
	Fault   *Fault         `json:"fault,omitempty"`
}

// A Tenure is a time in which one node had an execution.
type Tenure struct {
	Node  outboard.NodeID `json:"node"`
	Since time.Time       `json:"since"`
	// Reason says how it came there: "started", or that another node has left.
	Reason string `json:"reason"`
}

// A Reason explains where and when steps were put.
type Reason struct {
	// Steps are the tasks that it is about.
	Steps []string        `json:"steps"`
	Node  outboard.NodeID `json:"node,omitempty"`
	Text  string          `json:"text"`
}

// A RunRequest starts a workflow.
type RunRequest struct {
	App, Workflow string
	// Input is JSON; nil is {}.
	Input []byte
	// ID names the execution, so that a request can be repeated: one with an ID that
	// is there starts nothing and tells of that execution. "" has the node choose one.
	ID string
	// Wait answers when the execution has ended.
	Wait bool
}

// RunWorkflow starts an execution.
func (c *Client) RunWorkflow(ctx context.Context, r RunRequest) (Execution, error) {
	if len(r.Input) == 0 {
		r.Input = []byte("{}")
	}
	var e Execution
	query := url.Values{"wait": {strconv.FormatBool(r.Wait)}}
	if r.ID != "" {
		query.Set("id", r.ID)
	}
	path := "/v1/apps/" + url.PathEscape(r.App) + "/workflows/" + url.PathEscape(r.Workflow) + "/executions?" + query.Encode()
	response, err := c.send(ctx, http.MethodPost, path, body{bytes.NewReader(r.Input), "application/json"})
	if err != nil {
		return e, err
	}
	err = decode(response, path, &e)
	return e, err
}

// ExecutionsRequest says which executions are wanted; the zero value all that are kept.
type ExecutionsRequest struct {
	App, Workflow string
	State         string
	// ID is the part of the id behind the app's name.
	ID string
	// Limit is how many of the newest there are, 0 for all.
	Limit int
}

// Executions lists executions of workflows, newest first.
func (c *Client) Executions(ctx context.Context, r ExecutionsRequest) ([]Execution, error) {
	query := url.Values{}
	for key, value := range map[string]string{"app": r.App, "workflow": r.Workflow, "state": r.State, "id": r.ID} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if r.Limit > 0 {
		query.Set("limit", strconv.Itoa(r.Limit))
	}
	return get[[]Execution](ctx, c, "/v1/executions?"+query.Encode())
}

// Execution tells all about an execution; why asks for the placement's reasons.
func (c *Client) Execution(ctx context.Context, id string, why bool) (Execution, error) {
	path, err := executionPath(id)
	if err != nil {
		return Execution{}, err
	}
	return get[Execution](ctx, c, path+"?"+url.Values{"why": {strconv.FormatBool(why)}}.Encode())
}

// CancelExecution ends an execution. Steps under way end, and nothing follows them.
func (c *Client) CancelExecution(ctx context.Context, id string) (Execution, error) {
	path, err := executionPath(id)
	if err != nil {
		return Execution{}, err
	}
	var e Execution
	err = c.do(ctx, http.MethodPost, path+"/cancel", nil, &e)
	return e, err
}

func executionPath(id string) (string, error) {
	app, own, ok := strings.Cut(id, "/")
	if !ok || app == "" || own == "" {
		return "", outboard.Errorf(outboard.Invalid, "", "execution %q: want APP/ID, as `outboard executions` shows it", id)
	}
	return "/v1/apps/" + url.PathEscape(app) + "/executions/" + url.PathEscape(own), nil
}
