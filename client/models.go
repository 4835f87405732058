package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
)

// ModelFailed is the State of a Model that could not be loaded.
const ModelFailed = "failed"

// A Model is a model of the pool's repository.
type Model struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Of is the version that this one restored, 0 for none.
	Of     int    `json:"of,omitempty"`
	Engine string `json:"engine"`
	// State is "ready" if a node has loaded the model, else "loading", "unloaded" or ModelFailed, with
	// the Reason; Node is the node in that state.
	State  string          `json:"state"`
	Reason string          `json:"reason,omitempty"`
	Node   outboard.NodeID `json:"node,omitempty"`
	// Size is the size of the files.
	Size    outboard.Bytes  `json:"size"`
	Aliases []string        `json:"aliases,omitempty"`
	Canary  int             `json:"canary,omitempty"`
	Pushed  time.Time       `json:"pushed"`
	By      outboard.NodeID `json:"by"`
	// Previous is the version that a roll-back would restore, 0 for none.
	Previous int `json:"previous,omitempty"`
}

// ModelDetails describes a model in full.
type ModelDetails struct {
	Model
	Files     map[string]string `json:"files"`
	Versions  []ModelVersion    `json:"versions"`
	Inputs    []ModelTensor     `json:"inputs,omitempty"`
	Outputs   []ModelTensor     `json:"outputs,omitempty"`
	Placement []ModelPlacement  `json:"placement"`
}

// A ModelVersion is a retained version.
type ModelVersion struct {
	Version int             `json:"version"`
	Of      int             `json:"of,omitempty"`
	Size    outboard.Bytes  `json:"size"`
	Pushed  time.Time       `json:"pushed"`
	By      outboard.NodeID `json:"by"`
}

// A ModelTensor is an input or output; -1 in its shape is a variable dimension.
type ModelTensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
}

// A ModelPlacement is the rating of a node for the next request, with the reasons.
type ModelPlacement struct {
	Node  outboard.NodeID `json:"node"`
	State string          `json:"state"`
	// Cost is the expected time until a result.
	Cost     Duration `json:"cost"`
	Why      string   `json:"why"`
	Excluded bool     `json:"excluded,omitempty"`
}

// A ModelPush is a version to put in force.
type ModelPush struct {
	Name string `json:"name"`
	// Main is the file that the engine loads, one of Files. Files maps names to digests of
	// artifacts of the node.
	Main  string            `json:"main"`
	Files map[string]string `json:"files"`
	// Config is the content of the configuration file ConfigFile, "" for none.
	Config     string `json:"config,omitempty"`
	ConfigFile string `json:"config_file,omitempty"`
	// Check only checks the push. NoWait returns before nodes have loaded the version.
	Check  bool `json:"check,omitempty"`
	NoWait bool `json:"no_wait,omitempty"`
}

// A ModelRollout puts a retained version in force again.
type ModelRollout struct {
	Version int `json:"version"`
	// Canary is the percentage of requests for the version, 0 for all.
	Canary int  `json:"canary,omitempty"`
	NoWait bool `json:"no_wait,omitempty"`
}

// A PushedModel is a version that was put in force.
type PushedModel struct {
	Name    string         `json:"name"`
	Version int            `json:"version"`
	Of      int            `json:"of,omitempty"`
	Engine  string         `json:"engine"`
	Size    outboard.Bytes `json:"size"`
	// Nodes are the nodes that have loaded the version.
	Nodes []outboard.NodeID `json:"nodes,omitempty"`
	// Warnings are about names that the model shares with others.
	Warnings []string `json:"warnings,omitempty"`
}

// Models lists the models of the pool.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	return get[[]Model](ctx, c, "/v1/models")
}

// Model returns a model's details.
func (c *Client) Model(ctx context.Context, name string) (ModelDetails, error) {
	return get[ModelDetails](ctx, c, "/v1/models/"+url.PathEscape(name))
}

// PushModel puts a version of a model in force.
func (c *Client) PushModel(ctx context.Context, p ModelPush) (PushedModel, error) {
	var made PushedModel
	err := c.do(ctx, http.MethodPost, "/v1/models", p, &made)
	return made, err
}

// RolloutModel puts a retained version in force again.
func (c *Client) RolloutModel(ctx context.Context, name string, r ModelRollout) (PushedModel, error) {
	var made PushedModel
	err := c.do(ctx, http.MethodPost, "/v1/models/"+url.PathEscape(name)+"/rollout", r, &made)
	return made, err
}

// RollbackModel puts the previous version in force again.
func (c *Client) RollbackModel(ctx context.Context, name string) (PushedModel, error) {
	var made PushedModel
	err := c.do(ctx, http.MethodPost, "/v1/models/"+url.PathEscape(name)+"/rollback", struct{}{}, &made)
	return made, err
}

// RemoveModel removes a model from the pool.
func (c *Client) RemoveModel(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/models/"+url.PathEscape(name), nil, nil)
}

// OpenModels sends a request to the interfaces of models, such as /v2/models/NAME/infer over HTTP.
// The caller closes the body of the response, whatever its status.
func (c *Client) OpenModels(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", "node"
	response, err := (&http.Transport{DialContext: c.dial, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return nil, c.unreachable(r.Context(), err)
	}
	return response, nil
}
