package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/datadir"
)

// CallsSocketName is the name of the socket in a node's data folder where programs
// connect to make and to serve calls.
const CallsSocketName = datadir.CallsSocket

// A Service is what the pool's programs serve.
type Service struct {
	Name      string            `json:"name"`
	Endpoints int               `json:"endpoints"`
	Nodes     []outboard.NodeID `json:"nodes"`
	Methods   []string          `json:"methods,omitempty"` // where it is described
}

// An Endpoint is a program that serves.
type Endpoint struct {
	ID       string          `json:"id"`
	Node     outboard.NodeID `json:"node"`
	Services []string        `json:"services"`
	// Address is that of a gRPC server that the node speaks for.
	Address string    `json:"address,omitempty"`
	Program string    `json:"program,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Weight  int       `json:"weight,omitempty"`
	Started time.Time `json:"started"`
	// Process numbers the process of the node's fabric that it is connected to:
	// each upgrade has the next number.
	Process int `json:"process,omitempty"`
}

// An UpgradeRequest asks a node to have another process carry its calls.
type UpgradeRequest struct {
	// Binary is the program to run; empty: the node's own, as it is on disk now.
	Binary string `json:"binary,omitempty"`
}

// An Upgrade is how one process took the calls of a node over from another.
type Upgrade struct {
	Node outboard.NodeID `json:"node"`
	// From gave the node's calls to To.
	From CallsProcess `json:"from"`
	To   CallsProcess `json:"to"`
	// Took is how long it took, from the request until new calls went to the new
	// process; Pause is the part of it in which nobody took connections.
	Took  Duration `json:"took"`
	Pause Duration `json:"pause"`
	// Calls and Streams were in flight, and end in the old process.
	Calls   int `json:"calls"`
	Streams int `json:"streams"`
}

// A CallsProcess is a process that carries a node's calls.
type CallsProcess struct {
	Number  int    `json:"number"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// Upgrade has another process take the node's calls over. Calls in flight go on.
func (c *Client) Upgrade(ctx context.Context, request UpgradeRequest) (Upgrade, error) {
	var u Upgrade
	err := c.do(ctx, http.MethodPost, "/v1/upgrade", request, &u)
	return u, err
}

// Policies are the policies of calls in force, and those that were.
type Policies struct {
	Policies []Policy        `json:"policies"`
	Versions []PolicyVersion `json:"versions"` // oldest first; the last is in force
}

// A Policy is one policy in force.
type Policy struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Applies says to what: services, methods, tenants.
	Applies string `json:"applies"`
	When    string `json:"when,omitempty"`
	// Calls came by on this node; Acted counts those that it did something to, of
	// which it refused some, and Failed those that it could not judge.
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
	// Check says not to apply it.
	Check bool `json:"check,omitempty"`
}

// Calls is a row of the live table of one node's calls: those of a method.
type Calls struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	// Rate and Errors are calls in a second, Sent and Received bytes in a second.
	Rate     float64  `json:"rate"`
	Errors   float64  `json:"errors"`
	P50      Duration `json:"p50"`
	P99      Duration `json:"p99"`
	Sent     float64  `json:"sent"`
	Received float64  `json:"received"`
	InFlight int64    `json:"in_flight"`
	// Total is how many calls have ended since the node began, Acted which policies did
	// something, and how often. Upgrades count on.
	Total uint64            `json:"total"`
	Acted map[string]uint64 `json:"acted,omitempty"`
}

// Services lists the services of the pool.
func (c *Client) Services(ctx context.Context) ([]Service, error) {
	return get[[]Service](ctx, c, "/v1/services")
}

// Endpoints lists the programs that serve; those of one service when it is named.
func (c *Client) Endpoints(ctx context.Context, service string) ([]Endpoint, error) {
	return get[[]Endpoint](ctx, c, "/v1/endpoints?"+url.Values{"service": {service}}.Encode())
}

// Offer makes the node speak for a gRPC server at address, until Withdraw or the
// node's end.
func (c *Client) Offer(ctx context.Context, e Endpoint) (Endpoint, error) {
	var made Endpoint
	err := c.do(ctx, http.MethodPost, "/v1/endpoints", e, &made)
	return made, err
}

// Withdraw ends what Offer began.
func (c *Client) Withdraw(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/endpoints?"+url.Values{"id": {id}}.Encode(), nil, nil)
}

// Policies tells which policies are in force.
func (c *Client) Policies(ctx context.Context) (Policies, error) {
	return get[Policies](ctx, c, "/v1/policies")
}

// ApplyPolicies puts a text of policies in force in the pool, or only checks it.
func (c *Client) ApplyPolicies(ctx context.Context, f PolicyFile) (PolicyVersion, error) {
	var v PolicyVersion
	err := c.do(ctx, http.MethodPost, "/v1/policies", f, &v)
	return v, err
}

// RollbackPolicies puts the policies back in force that were so before.
func (c *Client) RollbackPolicies(ctx context.Context) (PolicyVersion, error) {
	var v PolicyVersion
	err := c.do(ctx, http.MethodPost, "/v1/policies/rollback", nil, &v)
	return v, err
}

// Calls is the live table of this node's calls.
func (c *Client) Calls(ctx context.Context) ([]Calls, error) {
	return get[[]Calls](ctx, c, "/v1/calls")
}
