package state

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// answerTime is how long a client with permissions may answer a request that it received.
const answerTime = 10 * time.Minute

// clients authenticates the clients of the embedded server. The node's own client shows a secret of
// the process and may do everything. The connections of other clients lead through a guard, which
// shows a secret of the connection.
type clients struct {
	secret string

	mu      sync.Mutex
	guards  map[string]bool                // the secrets of guarded connections
	systems map[string]*natsserver.Account // the secrets of clients of a system account
}

var _ natsserver.Authentication = (*clients)(nil)

func newClients() *clients {
	return &clients{secret: rand.Text(), guards: make(map[string]bool), systems: make(map[string]*natsserver.Account)}
}

// own authenticates a client of the node itself.
func (c *clients) own() nats.Option { return nats.Token(c.secret) }

// ofSystem authenticates one client of the node itself for the system account of a server, by
// which a cluster is administered.
func (c *clients) ofSystem(srv *natsserver.Server) nats.Option {
	secret := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.systems) // One server runs at a time.
	c.systems[secret] = srv.SystemAccount()
	return nats.Token(secret)
}

// Check implements natsserver.Authentication.
func (c *clients) Check(client natsserver.ClientAuthentication) bool {
	token := client.GetOpts().Token
	if token == c.secret {
		return true
	}
	c.mu.Lock()
	known, system := c.guards[token], c.systems[token]
	c.mu.Unlock()
	if system != nil {
		client.RegisterUser(&natsserver.User{Account: system})
		return true
	}
	if known {
		client.RegisterUser(&natsserver.User{Permissions: guardedPermissions()})
	}
	return known
}

// guardedPermissions returns the permissions that the server checks for a guarded client, after the
// guard has checked its subjects: the client answers only requests that it received. The server
// counts a request that reaches two subscriptions of the client as an answer.
func guardedPermissions() *natsserver.Permissions {
	return &natsserver.Permissions{
		Publish:  &natsserver.SubjectPermission{Allow: []string{">"}, Deny: []string{inboxRoot + ".>", "$SYS.>"}},
		Response: &natsserver.ResponsePermission{MaxMsgs: 16, Expires: answerTime},
	}
}

// admit returns a secret for one guarded connection, and the function that revokes it.
func (c *clients) admit() (secret string, forget func()) {
	secret = rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guards[secret] = true
	return secret, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.guards, secret)
	}
}

// tokenOf returns the credentials of a client that shows a secret.
func tokenOf(secret string) map[string]string { return map[string]string{"auth_token": secret} }

// A guardedServer serves a state to clients with permissions.
type guardedServer struct{ *State }

// serveGuarded relays a client with permissions to a server until one of them ends. It closes
// both.
func (l guardedServer) serveGuarded(ctx context.Context, p permissions, client, server net.Conn, credentials map[string]string) error {
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	denied := &denials{s: l.State, log: l.log.With("client", p.node), last: make(map[string]time.Time)}
	account, ended := l.accounts.Open(p.client(), maxHeld)
	defer ended()
	g := &guard.Guard{Rules: p, Credentials: credentials, Denied: denied.add, BatchOf: batchOf, Account: account}
	if p.tenant != "" {
		g.Deliver = tenantView{tenant: p.tenant}.deliver
	}
	if err := g.Relay(server, client); err != nil {
		return fmt.Errorf("%s: %w", p.client(), err)
	}
	return nil
}

// maxHeld bounds what the guards of this node hold for a client with permissions, in bytes: about a
// thousand connections, or the changes of the whole table for each of some connections that wait for a
// slow network.
const maxHeld = 128 << 20

// denials answers and logs the refused operations of a client.
type denials struct {
	s   *State
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

const (
	// denialPause is how long the same refusal is not logged again.
	denialPause = time.Minute
	maxDenials  = 100
)

// add returns the answer to a refused request, in the form of JetStream's own.
func (d *denials) add(err error) (answer []byte) {
	code := denialCode(err)
	if code == codeDenied {
		d.s.denied.Add(1)
	}
	if code != codeUnavailable && d.isNews(err.Error()) {
		d.log.Warn("a client of the pool's state was refused", "error", err)
	}
	answer, jsonErr := json.Marshal(map[string]any{"error": jetstream.APIError{Code: code, Description: err.Error()}})
	if jsonErr != nil {
		return nil
	}
	return answer
}

// denialCode returns the status of an answer. While no leader answers, it cannot be decided whether
// a client may write, and one for which much is held may write later: the client tries again then.
func denialCode(err error) int {
	switch outboard.KindOf(err) { //nolint:exhaustive // the others are denials
	case outboard.Unreachable, outboard.Busy:
		return codeUnavailable
	case outboard.Exhausted:
		return codeExhausted
	}
	return codeDenied
}

// isNews reports whether a refusal was not logged a short time ago.
func (d *denials) isNews(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.last[text]) < denialPause {
		return false
	}
	if len(d.last) >= maxDenials {
		return false
	}
	d.last[text] = time.Now()
	return true
}
