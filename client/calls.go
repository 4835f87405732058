package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/datadir"
)

// CallsSocketName is the name of the socket in a node's data folder to which programs
// connect to make and to serve calls.
const CallsSocketName = datadir.CallsSocket

// A Service is a gRPC service that programs of the pool serve.
type Service struct {
	Name      string            `json:"name"`
	Endpoints int               `json:"endpoints"`
	Nodes     []outboard.NodeID `json:"nodes"`
	Methods   []string          `json:"methods,omitempty"` // if a server describes it by reflection
}

// An Endpoint is a program that serves calls.
type Endpoint struct {
	ID       string          `json:"id"`
	Node     outboard.NodeID `json:"node"`
	Services []string        `json:"services"`
	// Address is the address of a plain gRPC server that was added with Offer.
	Address string    `json:"address,omitempty"`
	Program string    `json:"program,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Weight  int       `json:"weight,omitempty"`
	Started time.Time `json:"started"`
	// Process is the number of the node's managed process to which the program is
	// connected. Each upgrade increments it.
	Process int `json:"process,omitempty"`
}

// An UpgradeRequest requests that a node replace the process that carries its calls.
type UpgradeRequest struct {
	// Binary is the program to run; empty means the node's own, in its present state on disk.
	Binary string `json:"binary,omitempty"`
}

// An Upgrade describes the hand-over of a node's calls from one process to another.
type Upgrade struct {
	Node outboard.NodeID `json:"node"`
	// From is the replaced process, To its replacement.
	From CallsProcess `json:"from"`
	To   CallsProcess `json:"to"`
	// Took is the time from the request until new calls went to the new process; Pause is
	// the part of it in which no process accepted connections.
	Took  Duration `json:"took"`
	Pause Duration `json:"pause"`
	// Calls and Streams count the calls in flight, which complete in the old process.
	Calls   int `json:"calls"`
	Streams int `json:"streams"`
}

// A CallsProcess is a process that carries a node's calls.
type CallsProcess struct {
	Number  int    `json:"number"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// Upgrade replaces the process that carries the node's calls. Calls in flight continue.
func (c *Client) Upgrade(ctx context.Context, request UpgradeRequest) (Upgrade, error) {
	var u Upgrade
	err := c.do(ctx, http.MethodPost, "/v1/upgrade", request, &u)
	return u, err
}

// Policies are the policies in force and the versions of their text.
type Policies struct {
	Policies []Policy        `json:"policies"`
	Versions []PolicyVersion `json:"versions"` // oldest first; the last one is in force
}

// A Policy is one policy in force.
type Policy struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Applies names the services, methods and tenants to whose calls the policy applies.
	Applies string `json:"applies"`
	When    string `json:"when,omitempty"`
	// Calls counts the calls on this node for which the policy was evaluated, Acted the calls that
	// it affected, Refused the rejected ones among them, and Failed the calls for which its
	// evaluation failed.
	Calls   uint64 `json:"calls"`
	Acted   uint64 `json:"acted"`
	Refused uint64 `json:"refused"`
	Failed  uint64 `json:"failed"`
}

// A PolicyVersion is a text of policies that is or was in force.
type PolicyVersion struct {
	Number  int             `json:"number"`
	Name    string          `json:"name"`
	Text    string          `json:"text"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	Of      int             `json:"of,omitempty"`
}

// PolicyFile is a text of policies to apply.
type PolicyFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Check only checks the policies, without applying them.
	Check bool `json:"check,omitempty"`
}

// Calls is a row of the live table of a node's calls: the calls of one method.
type Calls struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	// Rate and Errors are calls per second, Sent and Received bytes per second.
	Rate     float64  `json:"rate"`
	Errors   float64  `json:"errors"`
	P50      Duration `json:"p50"`
	P99      Duration `json:"p99"`
	Sent     float64  `json:"sent"`
	Received float64  `json:"received"`
	InFlight int64    `json:"in_flight"`
	// Total counts the calls that have ended since the node started, and Acted, by policy,
	// the calls that it affected. An upgrade does not reset them.
	Total uint64            `json:"total"`
	Acted map[string]uint64 `json:"acted,omitempty"`
}

// Services lists the services of the pool.
func (c *Client) Services(ctx context.Context) ([]Service, error) {
	return get[[]Service](ctx, c, "/v1/services")
}

// Endpoints lists the endpoints of a service, or of all services if service is "".
func (c *Client) Endpoints(ctx context.Context, service string) ([]Endpoint, error) {
	return get[[]Endpoint](ctx, c, "/v1/endpoints?"+url.Values{"service": {service}}.Encode())
}

// Offer adds the plain gRPC server at e.Address as an endpoint, until Withdraw removes it.
func (c *Client) Offer(ctx context.Context, e Endpoint) (Endpoint, error) {
	var made Endpoint
	err := c.do(ctx, http.MethodPost, "/v1/endpoints", e, &made)
	return made, err
}

// Withdraw removes an endpoint that Offer added.
func (c *Client) Withdraw(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/endpoints?"+url.Values{"id": {id}}.Encode(), nil, nil)
}

// Policies returns the policies in force and the versions of their text.
func (c *Client) Policies(ctx context.Context) (Policies, error) {
	return get[Policies](ctx, c, "/v1/policies")
}

// ApplyPolicies puts a text of policies in force in the pool, or only checks it if f.Check is
// set.
func (c *Client) ApplyPolicies(ctx context.Context, f PolicyFile) (PolicyVersion, error) {
	var v PolicyVersion
	err := c.do(ctx, http.MethodPost, "/v1/policies", f, &v)
	return v, err
}

// RollbackPolicies puts the previous version of the policies in force again.
func (c *Client) RollbackPolicies(ctx context.Context) (PolicyVersion, error) {
	var v PolicyVersion
	err := c.do(ctx, http.MethodPost, "/v1/policies/rollback", nil, &v)
	return v, err
}

// Calls returns the live table of this node's calls.
func (c *Client) Calls(ctx context.Context) ([]Calls, error) {
	return get[[]Calls](ctx, c, "/v1/calls")
}
