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

// A Deployment is the body of POST /v1/apps: a manifest with all that it names. It is
// checked as a whole and applied as a whole.
type Deployment struct {
	// File is the manifest's name, for problems.
	File string `json:"file"`
	// Text is the manifest.
	Text string `json:"text"`
	// Files has the digest of each file that the manifest names, a module or a
	// workflow, by the name that stands there ("cart.wasm", "oci:HOST/REPO:TAG"). The
	// node has them all: see PutArtifact.
	Files map[string]string `json:"files,omitempty"`
	// Secrets are the values of the manifest's secrets.
	Secrets map[string][]byte `json:"secrets,omitempty"`
	// Check says not to apply it.
	Check bool `json:"check,omitempty"`
	// NoWait says not to wait until the node serves it: see AppNodes.
	NoWait bool `json:"no_wait,omitempty"`
}

// A Deployed is what a deployment or a roll-back brought.
type Deployed struct {
	App     string    `json:"app"`
	Tenant  string    `json:"tenant"`
	Version int       `json:"version"`
	Applied time.Time `json:"applied"`
	// Of is the version that a roll-back brought back, 0 for none.
	Of int `json:"of,omitempty"`
	// Routes are where the app is served, "GET http://HOST:PORT/APP/PATH".
	Routes []string `json:"routes,omitempty"`
	// Notes are what a user should know, though it is no mistake.
	Notes []Problem `json:"notes,omitempty"`
	// Nodes is how far the pool's nodes are with it, where somebody has asked: see
	// AppNodes.
	Nodes []AppNode `json:"nodes,omitempty"`
}

// A Problem is a mistake in a file of an app. What is not about one place has no Line.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Text says what is wrong, and what would be right.
	Text string `json:"text"`
}

// String is the problem as compilers write theirs.
func (p Problem) String() string {
	switch {
	case p.Line == 0 && p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// A ProblemsError refuses an app. It travels within a Failure.
type ProblemsError struct{ Problems []Problem }

// Error is the first problem, and how many there are.
func (e *ProblemsError) Error() string {
	switch len(e.Problems) {
	case 0:
		return "the app has problems"
	case 1:
		return e.Problems[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", e.Problems[0], len(e.Problems)-1)
}

// ProblemsOf are the problems that err carries.
func ProblemsOf(err error) []Problem {
	if e, ok := errors.AsType[*ProblemsError](err); ok {
		return e.Problems
	}
	return nil
}

// An App is an app that is deployed.
type App struct {
	Name    string          `json:"name"`
	Tenant  string          `json:"tenant"`
	Version int             `json:"version"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	// Of is the version whose content a roll-back brought back, 0 for none.
	Of        int      `json:"of,omitempty"`
	Functions []string `json:"functions"`
	Workflows []string `json:"workflows"`
	// Routes are the manifest's, "GET,POST /cart/{id}".
	Routes []string `json:"routes"`
	// Versions are the numbers of the versions that are kept, oldest first.
	Versions []int `json:"versions"`
	// State is AppReady where this node serves it, else AppStarting or AppFailed; Reason
	// says why it failed.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Nodes is how far each of the pool's nodes is with it, where that was asked for: see
	// AppsOnNodes.
	Nodes []AppNode `json:"nodes,omitempty"`
}

// How far a node is with a version of an app.
const (
	// AppReady: it serves the version.
	AppReady = "ready"
	// AppStarting: it makes it ready.
	AppStarting = "starting"
	// AppFailed: it could not, and tries again.
	AppFailed = "failed"
	// AppSilent: the node did not answer.
	AppSilent = "silent"
	// AppUnknown: the node's program is too old to tell.
	AppUnknown = "unknown"
)

// An AppNode is how far a node of the pool is with a version of an app.
type AppNode struct {
	Node  outboard.NodeID `json:"node"`
	State string          `json:"state"`
	// Serves is the version that takes requests there, 0 for none.
	Serves int `json:"serves,omitempty"`
	// Reason says why it failed, or why nothing is known.
	Reason string `json:"reason,omitempty"`
}

// A Function is a function of an app, with what it has done in the whole pool since its
// app's version was deployed.
type Function struct {
	App     string `json:"app"`
	Version int    `json:"version"`
	Name    string `json:"name"`
	Tenant  string `json:"tenant"`
	// Module is the digest of its module.
	Module string         `json:"module"`
	Size   outboard.Bytes `json:"size"`
	Entry  string         `json:"entry"`
	HTTP   bool           `json:"http,omitempty"`
	Limits FunctionLimits `json:"limits"`
	// Imports are what it may import, "bucket:seats", "arena:photos shared".
	Imports []string `json:"imports"`
	FunctionCounts
	// Nodes are those whose counts these are, each with its own.
	Nodes []NodeCounts `json:"nodes"`
	// Missing are nodes of the pool that did not tell theirs.
	Missing []outboard.NodeID `json:"missing,omitempty"`
}

// FunctionCounts are what a function has done. Times are of the last calls.
type FunctionCounts struct {
	// Calls have ended, Errors of them badly; Running are under way, Waiting wait
	// for their turn.
	Calls   uint64 `json:"calls"`
	Errors  uint64 `json:"errors"`
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
	// Instances are live.
	Instances int `json:"instances"`
	// Cold, Cloned and Reset are how calls came by their instance.
	Cold   uint64   `json:"cold"`
	Cloned uint64   `json:"cloned"`
	Reset  uint64   `json:"reset"`
	P50    Duration `json:"p50"`
	P99    Duration `json:"p99"`
	Fuel   uint64   `json:"fuel"`
}

// NodeCounts are what a function has done on one node.
type NodeCounts struct {
	Node outboard.NodeID `json:"node"`
	FunctionCounts
}

// FunctionLimits bound a function.
type FunctionLimits struct {
	Memory      outboard.Bytes `json:"memory"`
	Deadline    Duration       `json:"deadline"`
	Fuel        int64          `json:"fuel,omitempty"`
	Concurrency int            `json:"concurrency"`
	Queue       int            `json:"queue"`
	Response    outboard.Bytes `json:"response"`
	Window      outboard.Bytes `json:"window,omitempty"`
}

// A Workflow is a workflow of an app. The counts are of the pool's executions that
// are kept.
type Workflow struct {
	App    string `json:"app"`
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	// File is the digest of its text.
	File  string `json:"file"`
	Steps int    `json:"steps"`
	// Running executions have not ended; Completed ended well, Faulted did not, Cancelled
	// were told to end.
	Running   int `json:"running"`
	Completed int `json:"completed"`
	Faulted   int `json:"faulted"`
	Cancelled int `json:"cancelled"`
}

// Deploy puts an app in force in the whole pool, or only checks it. Its error carries
// all problems: see ProblemsOf.
func (c *Client) Deploy(ctx context.Context, d Deployment) (Deployed, error) {
	var made Deployed
	err := c.do(ctx, http.MethodPost, "/v1/apps", d, &made)
	return made, err
}

// A RollbackRequest asks for the version of an app that was in force before.
type RollbackRequest struct {
	App string
	// NoWait says not to wait until the node serves it: see AppNodes.
	NoWait bool
}

// RollbackApp puts the version of an app back in force that was so before the present one.
func (c *Client) RollbackApp(ctx context.Context, r RollbackRequest) (Deployed, error) {
	var made Deployed
	query := url.Values{"wait": {strconv.FormatBool(!r.NoWait)}}
	err := c.do(ctx, http.MethodPost, "/v1/apps/"+url.PathEscape(r.App)+"/rollback?"+query.Encode(), nil, &made)
	return made, err
}

// RemoveApp ends an app. Its buckets and the records of its executions stay.
func (c *Client) RemoveApp(ctx context.Context, app string) error {
	return c.do(ctx, http.MethodDelete, "/v1/apps/"+url.PathEscape(app), nil, nil)
}

// Apps lists the apps of the pool.
func (c *Client) Apps(ctx context.Context) ([]App, error) {
	return get[[]App](ctx, c, "/v1/apps")
}

// AppsOnNodes is Apps, with how far each node of the pool is with them. Nodes are waited for
// for a short while.
func (c *Client) AppsOnNodes(ctx context.Context) ([]App, error) {
	return get[[]App](ctx, c, "/v1/apps?nodes=true")
}

// AppNodes tells how far each node of the pool is with a version of an app. A later version
// counts as well. Nodes are waited for for a short while.
func (c *Client) AppNodes(ctx context.Context, app string, version int) ([]AppNode, error) {
	query := url.Values{"version": {strconv.Itoa(version)}}
	return get[[]AppNode](ctx, c, "/v1/apps/"+url.PathEscape(app)+"/nodes?"+query.Encode())
}

// Functions lists the functions of an app, of all apps where app is "", with what they
// did on all nodes.
func (c *Client) Functions(ctx context.Context, app string) ([]Function, error) {
	return get[[]Function](ctx, c, "/v1/functions?"+url.Values{"app": {app}}.Encode())
}

// Workflows lists the workflows of an app, of all apps where app is "".
func (c *Client) Workflows(ctx context.Context, app string) ([]Workflow, error) {
	return get[[]Workflow](ctx, c, "/v1/workflows?"+url.Values{"app": {app}}.Encode())
}
