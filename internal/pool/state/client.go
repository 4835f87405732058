package state

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/outboard-run/outboard"
)

// client is a connection to JetStream, with requests that survive elections, reconnections
// and lost answers.
type client struct {
	log *slog.Logger
	// name is the node's name: the server lets a client with permissions of its own receive answers
	// only below it. It is empty in an existing NATS cluster, where the cluster's users have
	// permissions.
	name string
	// tenant is the tenant of a helper process; "" for all others.
	tenant string
	nc     *nats.Conn
	js     jetstream.JetStream
	// unable returns the reason why no request can be answered now, or nil. A stopping node does
	// not wait then. A nil unable reports no reason.
	unable func() error
	// member returns the reason why the pool does not admit this client's node any more, or nil: no
	// request is made then. A nil member admits it always.
	member func() error

	attempts attempts
	writes   writes
	stopping atomic.Bool
}

// checkMember returns why the pool does not admit this client's node any more, or nil.
func (c *client) checkMember() error {
	if c.member == nil {
		return nil
	}
	return c.member()
}

// BeginStop says that the node stops. Parts that stop one after the other would each wait until its
// own limit for a state that has lost its majority: from now on requests end while no write has
// been acknowledged for some seconds, and failed requests are not repeated while this node reaches
// too few copies.
func (c *client) BeginStop() { c.stopping.Store(true) }

// connect opens the connection. It reconnects without limit: a server that restarts for a
// new role is back in a moment.
func (c *client) connect(extra ...nats.Option) error {
	return c.connectTo(nats.DefaultURL, extra...)
}

func (c *client) connectTo(url string, extra ...nats.Option) error {
	opts := append([]nats.Option{
		nats.Name("outboard"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(20*time.Millisecond, 20*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(5 * time.Second),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { c.attempts.cancelAll() }),
	}, extra...)
	if c.name != "" {
		opts = append(opts, nats.CustomInboxPrefix(strings.TrimSuffix(inboxOf(c.name, c.tenant), ".")))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return &outboard.Error{Op: "connect to the pool's state", Kind: outboard.Unreachable, Err: err}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return fmt.Errorf("connect to the pool's state: %w", err)
	}
	c.nc, c.js = nc, js
	return nil
}

// messageID returns a unique id of a message. It begins with the node's name, so that no other
// node can use it first.
func (c *client) messageID() string {
	if c.name == "" {
		return nuid.Next()
	}
	return c.name + "." + nuid.Next()
}

// api makes one request to the JetStream API.
func (c *client) api(ctx context.Context, subject string, request, answer any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, "$JS.API."+subject, text)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}

func unreachable(op string, err error) error {
	return &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
}
