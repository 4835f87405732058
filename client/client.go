// Package client is the Go client of a node's HTTP API: it lists the pool's nodes, devices and
// leases, acquires leases, deploys apps and manages calls. The zero value of [Client] uses the
// node of this user on this machine.
//
// A node serves HTTP with JSON on the unix socket outboard.sock in its data
// folder. Every process that may open the socket may use the node. The methods of Client
// are safe for concurrent use.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/datadir"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// SocketName is the name of the node's socket in its data folder.
const SocketName = "outboard.sock"

// A Client calls the API of one node.
type Client struct {
	// Data is the node's data folder; empty means DefaultData().
	Data string

	silence silence // zero: defaultSilence
}

// DefaultData returns the data folder of a node that was started without --data:
// /var/lib/outboard for root, otherwise a folder below the user's state folder.
func DefaultData() string { return datadir.Default() }

// Folder returns the data folder that the client uses.
func (c *Client) Folder() string {
	if c.Data == "" {
		return DefaultData()
	}
	return c.Data
}

// Status returns the node's version, addresses and health.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status")
}

// Nodes lists the pool's nodes.
func (c *Client) Nodes(ctx context.Context) ([]outboard.Node, error) {
	return get[[]outboard.Node](ctx, c, "/v1/nodes")
}

// RemovedNode describes a node that was removed.
type RemovedNode struct {
	// Admitted are the nodes that the node had admitted to the pool, and those that these had
	// admitted. They are members of the pool.
	Admitted []outboard.NodeID `json:"admitted,omitempty"`
}

// RemoveNode revokes a node: all nodes refuse it from now on, and its leases end. If it had a
// replica of the pool's state, the authority's key is renewed: nodes that are away now can return
// without a token until the time away has passed.
func (c *Client) RemoveNode(ctx context.Context, name outboard.NodeID, away time.Duration) (RemovedNode, error) {
	query := url.Values{"away": {away.String()}}
	var removed RemovedNode
	err := c.do(ctx, http.MethodDelete, "/v1/nodes/"+url.PathEscape(string(name))+"?"+query.Encode(), nil, &removed)
	return removed, err
}

// Devices lists the pool's devices that match selector, with the leases on each.
func (c *Client) Devices(ctx context.Context, selector outboard.Selector) ([]Device, error) {
	return get[[]Device](ctx, c, "/v1/devices?"+url.Values{"selector": {selector.String()}}.Encode())
}

// Network lists the measured links between nodes of the pool, by their nodes. In a large pool a
// node measures the links to a few other nodes only.
func (c *Client) Network(ctx context.Context) ([]Link, error) {
	return get[[]Link](ctx, c, "/v1/network")
}

// Nearest returns the measured links from this node to the given nodes, without nodes to all, by
// ascending round-trip time. Programs can use it as a hint where to send work or data.
func (c *Client) Nearest(ctx context.Context, nodes ...outboard.NodeID) ([]Link, error) {
	return get[[]Link](ctx, c, "/v1/network/nearest?"+url.Values{"node": texts(nodes)}.Encode())
}

func texts(nodes []outboard.NodeID) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, string(n))
	}
	return all
}

// Leases lists the valid leases.
func (c *Client) Leases(ctx context.Context) ([]outboard.Lease, error) {
	return get[[]outboard.Lease](ctx, c, "/v1/leases")
}

// Sessions lists the live sessions on this node's devices.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	return get[[]Session](ctx, c, "/v1/sessions")
}

// KillSession ends a session on one of this node's devices.
func (c *Client) KillSession(ctx context.Context, id outboard.SessionID) error {
	return c.do(ctx, http.MethodDelete, "/v1/sessions/"+url.PathEscape(string(id)), nil, nil)
}

// Token creates a joining token, which can be used once and expires after ttl. Zero means the
// node's default.
func (c *Client) Token(ctx context.Context, ttl time.Duration) (Token, error) {
	var token Token
	err := c.do(ctx, http.MethodPost, "/v1/tokens", TokenRequest{TTL: Duration(ttl)}, &token)
	return token, err
}

// Stop requests the node to shut down.
func (c *Client) Stop(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/stop", nil, nil)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// do sends in as JSON and decodes the response into out; either may be nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	response, err := c.open(ctx, method, path, in)
	if err != nil {
		return err
	}
	return decode(response, path, out)
}

// decode decodes the response to a request for path into out, which may be nil, and
// closes the response.
func decode(response *http.Response, path string, out any) error {
	defer response.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, response.Body)
		return err
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return outboard.Errorf(outboard.Protocol, "ask the node", "%s: %w", path, err)
	}
	return nil
}

// A body is the body of a request.
type body struct {
	io.Reader
	contentType string // "" for none
}

// open sends a request with in as its JSON body. It returns the response if its status is 2xx, and
// the caller must close it; any other status becomes an error.
func (c *Client) open(ctx context.Context, method, path string, in any) (*http.Response, error) {
	text, err := encode(in)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, method, path, body{Reader: text})
}

// send is open for a body that is already encoded.
func (c *Client) send(ctx context.Context, method, path string, b body) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://node"+path, b.Reader)
	if err != nil {
		return nil, err
	}
	if b.contentType != "" {
		request.Header.Set("Content-Type", b.contentType)
	}
	response, err := c.roundTrip(request, cmp.Or(c.silence, defaultSilence()))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, decodeError(response)
	}
	return response, nil
}

func encode(in any) (io.Reader, error) {
	if in == nil {
		return http.NoBody, nil
	}
	text, err := json.Marshal(in)
	return bytes.NewReader(text), err
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return unixsock.Dial(ctx, filepath.Join(c.Folder(), SocketName))
}

// unreachable returns an error that names the reason why no node answered, and the remedy.
func (c *Client) unreachable(ctx context.Context, err error) error {
	const op = "ask the node"
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)) && datadir.InUse(c.Folder()):
		return outboard.Errorf(outboard.NoPool, "",
			"the node with the data folder %s is starting or stopping, and answers no commands yet: its log says for what it waits", c.Folder())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return outboard.Errorf(outboard.NoPool, "", "no node runs with the data folder %s: start one with %s",
			c.Folder(), c.startHint())
	case errors.Is(err, fs.ErrPermission):
		return outboard.Errorf(outboard.Denied, op,
			"%w: only the user who started the node may use it; run `outboard up` yourself, or name another node with --data", err)
	}
	return &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
}

func (c *Client) startHint() string {
	if c.Folder() == DefaultData() {
		return "`outboard up`, or name the folder of another node with --data"
	}
	return "`outboard up --data " + c.Folder() + "`"
}
