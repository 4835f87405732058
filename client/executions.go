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

// The states of an execution and of a step, in the terms of Serverless Workflow.
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
	// ID is unique in the pool: "APP/ID".
	ID       string `json:"id"`
	App      string `json:"app"`
	Workflow string `json:"workflow"`
	// Version is the app's version when the execution started; it runs with that version
	// to its end.
	Version int    `json:"version"`
	State   string `json:"state"`
	// Node is the node that runs the execution, or ran it last.
	Node    outboard.NodeID `json:"node"`
	Started time.Time       `json:"started"`
	Ended   time.Time       `json:"ended,omitzero"`
	// Output is set if the execution is completed, Fault if it is faulted.
	Output json.RawMessage `json:"output,omitempty"`
	Fault  *Fault          `json:"fault,omitempty"`
	// Input and the fields after it are set by Client.Execution, not in lists.
	Input json.RawMessage `json:"input,omitempty"`
	Steps []Step          `json:"steps,omitempty"`
	// Nodes are the nodes that have run the execution, in order, with the reason of each change.
	Nodes []Tenure `json:"nodes,omitempty"`
	// Why explains the placement, if the request asked for it.
	Why []Reason `json:"why,omitempty"`
}

// A Fault is the reason that an execution or step failed: an error of Serverless Workflow, which is
// a problem document (RFC 9457).
type Fault struct {
	Type     string `json:"type"`
	Status   int    `json:"status"`
	Title    string `json:"title,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// A Step is one attempt of one task.
type Step struct {
	// Task is the task's position in the workflow, "/do/2/resize"; Name is its name.
	Task string `json:"task"`
	Name string `json:"name"`
	// Kind is the task's type: "call", "set", "wait", ...
	Kind     string `json:"kind"`
	Function string `json:"function,omitempty"`
	// Attempt is 1 for the first; Iteration counts in loops, from 0.
	Attempt   int             `json:"attempt"`
	Iteration int             `json:"iteration,omitempty"`
	State     string          `json:"state"`
	Node      outboard.NodeID `json:"node"`
	// Ready is when all of the step's inputs were available, Started when it began to run.
	Ready   time.Time `json:"ready,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Took    Duration  `json:"took"`
	// Start is how the instance of the step's call was created: "cold", "clone" or "reset".
	Start string `json:"start,omitempty"`
	// Pointer and Copied count the bytes of the step's input and output that were passed by pointer
	// and by copy.
	Pointer outboard.Bytes `json:"pointer"`
	Copied  outboard.Bytes `json:"copied"`
	Fuel    int64          `json:"fuel,omitempty"`
	Imports []ImportUse    `json:"imports,omitempty"`
	Fault   *Fault         `json:"fault,omitempty"`
}

// A Tenure is a period in which one node ran an execution.
type Tenure struct {
	Node  outboard.NodeID `json:"node"`
	Since time.Time       `json:"since"`
	// Reason is why the node runs the execution: "started", or that another node has left.
	Reason string `json:"reason"`
}

// A Reason explains where steps were placed and when they were launched.
type Reason struct {
	// Steps are the tasks that the reason explains.
	Steps []string        `json:"steps"`
	Node  outboard.NodeID `json:"node,omitempty"`
	Text  string          `json:"text"`
}

// A RunRequest starts a workflow.
type RunRequest struct {
	App, Workflow string
	// Input is JSON; nil means {}.
	Input []byte
	// ID is an idempotency key: a request with the ID of an existing execution starts none and
	// returns the existing one. If it is "", the node chooses an ID.
	ID string
	// Wait delays the response until the execution has ended.
	Wait bool
}

// RunWorkflow starts an execution of a workflow.
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

// ExecutionsRequest selects executions; its zero value selects all retained ones.
type ExecutionsRequest struct {
	App, Workflow string
	State         string
	// ID is the part of an execution's ID after the app's name.
	ID string
	// Limit bounds the number of executions, the newest first; 0 means all.
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

// Execution returns an execution with its steps, and with the reasons of its placement if why
// is set.
func (c *Client) Execution(ctx context.Context, id string, why bool) (Execution, error) {
	path, err := executionPath(id)
	if err != nil {
		return Execution{}, err
	}
	return get[Execution](ctx, c, path+"?"+url.Values{"why": {strconv.FormatBool(why)}}.Encode())
}

// CancelExecution cancels an execution. Running steps are ended, and no further steps are started.
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
