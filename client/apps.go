package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
)

// A Deployment is the body of POST /v1/apps: a manifest and all files and secrets that it names.
// The node checks it and applies it as a whole.
type Deployment struct {
	// File is the manifest's file name, which problems quote.
	File string `json:"file"`
	// Text is the manifest.
	Text string `json:"text"`
	// Files maps the name of each module and workflow in the manifest ("cart.wasm",
	// "oci:HOST/REPO:TAG") to its digest. The files must be on the node: see PutArtifact.
	Files map[string]string `json:"files,omitempty"`
	// Secrets are the values of the manifest's secrets.
	Secrets map[string][]byte `json:"secrets,omitempty"`
	// Check only checks the app, without applying it.
	Check bool `json:"check,omitempty"`
	// NoWait returns before the node serves the new version: see AppNodes.
	NoWait bool `json:"no_wait,omitempty"`
}

// A Deployed is the result of a deployment or a roll-back.
type Deployed struct {
	App     string    `json:"app"`
	Tenant  string    `json:"tenant"`
	Version int       `json:"version"`
	Applied time.Time `json:"applied"`
	// Of is the version that a roll-back restored, 0 for none.
	Of int `json:"of,omitempty"`
	// Routes are the app's routes with their addresses, "GET http://HOST:PORT/APP/PATH".
	Routes []string `json:"routes,omitempty"`
	// Notes are remarks on the manifest that are not mistakes.
	Notes []Problem `json:"notes,omitempty"`
	// Nodes has the state of the version on the pool's nodes, if it was requested: see
	// AppNodes.
	Nodes []AppNode `json:"nodes,omitempty"`
}

// A Problem is a mistake in a file of an app. Its Line is 0 if it concerns no single place.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Text describes the mistake and its correction.
	Text string `json:"text"`
}

// String returns the problem in the form of compilers' messages: FILE:LINE:COLUMN: TEXT.
func (p Problem) String() string {
	switch {
	case p.Line == 0 && p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// A ProblemsError rejects an app. A Failure carries it in JSON.
type ProblemsError struct{ Problems []Problem }

// Error returns the first problem and the number of further ones.
func (e *ProblemsError) Error() string {
	switch len(e.Problems) {
	case 0:
		return "the app has problems"
	case 1:
		return e.Problems[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", e.Problems[0], len(e.Problems)-1)
}

// ProblemsOf returns the problems of the ProblemsError in err's tree, nil if there is none.
func ProblemsOf(err error) []Problem {
	if e, ok := errors.AsType[*ProblemsError](err); ok {
		return e.Problems
	}
	return nil
}

// An App is a deployed app.
type App struct {
	Name    string          `json:"name"`
	Tenant  string          `json:"tenant"`
	Version int             `json:"version"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	// Of is the version whose content a roll-back restored, 0 for none.
	Of        int      `json:"of,omitempty"`
	Functions []string `json:"functions"`
	Workflows []string `json:"workflows"`
	// Routes are the manifest's routes, "GET,POST /cart/{id}".
	Routes []string `json:"routes"`
	// Versions are the numbers of the retained versions, oldest first.
	Versions []int `json:"versions"`
	// Previous is the version that a roll-back would restore, 0 for none.
	Previous int `json:"previous,omitempty"`
	// State is AppReady if this node serves the app, otherwise AppStarting or AppFailed; Reason is
	// the reason of a failure.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Nodes has the state on each of the pool's nodes, if it was requested: see
	// AppsOnNodes.
	Nodes []AppNode `json:"nodes,omitempty"`
}

// The states of an app's version on a node.
const (
	// AppReady means that the node serves the version.
	AppReady = "ready"
	// AppStarting means that the node fetches and compiles the version.
	AppStarting = "starting"
	// AppFailed means that the node could not start the version and tries again.
	AppFailed = "failed"
	// AppSilent means that the node did not answer.
	AppSilent = "silent"
	// AppUnknown means that the node's version of Outboard cannot report the state.
	AppUnknown = "unknown"
)

// An AppNode is the state of an app's version on a node of the pool.
type AppNode struct {
	Node  outboard.NodeID `json:"node"`
	State string          `json:"state"`
	// Serves is the version that the node serves, 0 for none.
	Serves int `json:"serves,omitempty"`
	// Reason is the reason that the version failed, or that its state is not known.
	Reason string `json:"reason,omitempty"`
}

// A Function is a function of an app, with statistics of the whole pool since its
// app's version was deployed.
type Function struct {
	App     string `json:"app"`
	Version int    `json:"version"`
	Name    string `json:"name"`
	Tenant  string `json:"tenant"`
	// Module is the digest of the function's module.
	Module string         `json:"module"`
	Size   outboard.Bytes `json:"size"`
	Entry  string         `json:"entry"`
	HTTP   bool           `json:"http,omitempty"`
	Limits FunctionLimits `json:"limits"`
	// Imports are the resources that the function may import, "bucket:seats", "arena:photos
	// shared".
	Imports []string `json:"imports"`
	FunctionCounts
	// Nodes has the counts of each node; FunctionCounts is their sum.
	Nodes []NodeCounts `json:"nodes"`
	// Missing are the nodes of the pool that did not report their counts.
	Missing []outboard.NodeID `json:"missing,omitempty"`
}

// FunctionCounts are the statistics of a function's calls. P50 and P99 are of the latest calls.
type FunctionCounts struct {
	// Calls counts the calls that have ended, Errors the failed ones among them, Running the calls
	// in progress, and Waiting those in the queue.
	Calls   uint64 `json:"calls"`
	Errors  uint64 `json:"errors"`
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
	// Instances counts the live instances.
	Instances int `json:"instances"`
	// Cold, Cloned and Reset count the calls by how their instance was created.
	Cold   uint64   `json:"cold"`
	Cloned uint64   `json:"cloned"`
	Reset  uint64   `json:"reset"`
	P50    Duration `json:"p50"`
	P99    Duration `json:"p99"`
	Fuel   uint64   `json:"fuel"`
}

// NodeCounts are the statistics of a function's calls on one node.
type NodeCounts struct {
	Node outboard.NodeID `json:"node"`
	FunctionCounts
}

// FunctionLimits are the limits of a function.
type FunctionLimits struct {
	Memory      outboard.Bytes `json:"memory"`
	Deadline    Duration       `json:"deadline"`
	Fuel        int64          `json:"fuel,omitempty"`
	Concurrency int            `json:"concurrency"`
	Queue       int            `json:"queue"`
	Response    outboard.Bytes `json:"response"`
	Window      outboard.Bytes `json:"window,omitempty"`
}

// A Workflow is a workflow of an app. Its counts are of the retained executions in the pool.
type Workflow struct {
	App    string `json:"app"`
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	// File is the digest of the workflow's text.
	File  string `json:"file"`
	Steps int    `json:"steps"`
	// Running counts the executions that have not ended; Completed, Faulted and Cancelled count the
	// ended ones by their state.
	Running   int `json:"running"`
	Completed int `json:"completed"`
	Faulted   int `json:"faulted"`
	Cancelled int `json:"cancelled"`
}

// Deploy deploys an app in the whole pool, or only checks it if d.Check is set. Its error
// carries all problems: see ProblemsOf.
func (c *Client) Deploy(ctx context.Context, d Deployment) (Deployed, error) {
	var made Deployed
	err := c.do(ctx, http.MethodPost, "/v1/apps", d, &made)
	return made, err
}

// A RollbackRequest requests the previous version of an app.
type RollbackRequest struct {
	App string
	// NoWait returns before the node serves the version: see AppNodes.
	NoWait bool
}

// RollbackApp deploys the previous version of an app again.
func (c *Client) RollbackApp(ctx context.Context, r RollbackRequest) (Deployed, error) {
	var made Deployed
	query := url.Values{"wait": {strconv.FormatBool(!r.NoWait)}}
	err := c.do(ctx, http.MethodPost, "/v1/apps/"+url.PathEscape(r.App)+"/rollback?"+query.Encode(), nil, &made)
	return made, err
}

// RemoveApp removes an app. Its buckets and the records of its executions are retained.
func (c *Client) RemoveApp(ctx context.Context, app string) error {
	return c.do(ctx, http.MethodDelete, "/v1/apps/"+url.PathEscape(app), nil, nil)
}

// Apps lists the apps of the pool.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	return get[[]App](ctx, c, "/v1/apps")
}

// AppsOnNodes lists the apps of the pool with their state on each node. A node that does not
// answer in time is AppSilent.
func (c *Client) AppsOnNodes(ctx context.Context) ([]App, error) {
	return get[[]App](ctx, c, "/v1/apps?nodes=true")
}

// AppNodes returns the state of an app's version, or of a later one, on each node of the pool.
// A node that does not answer in time is AppSilent.
func (c *Client) AppNodes(ctx context.Context, app string, version int) ([]AppNode, error) {
	query := url.Values{"version": {strconv.Itoa(version)}}
	return get[[]AppNode](ctx, c, "/v1/apps/"+url.PathEscape(app)+"/nodes?"+query.Encode())
}

// Functions lists the functions of an app, or of all apps if app is "", with their statistics
// on all nodes.
func (c *Client) Functions(ctx context.Context, app string) ([]Function, error) {
	return get[[]Function](ctx, c, "/v1/functions?"+url.Values{"app": {app}}.Encode())
}

// Workflows lists the workflows of an app, or of all apps if app is "".
func (c *Client) Workflows(ctx context.Context, app string) ([]Workflow, error) {
	return get[[]Workflow](ctx, c, "/v1/workflows?"+url.Values{"app": {app}}.Encode())
}
