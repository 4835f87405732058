package tenant

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/ipc"
)

// A tenant's process gets requests in two ways. While the node runs no other tenant's process, it
// passes whole connections of clients (TypeConn), and this process reads their requests itself. As
// soon as there is another tenant, the node has these connections closed (TypeCloseConns), reads
// every request, determines its tenant, and forwards it over a connection of its own: so no process
// ever reads another tenant's request. internal/tenant/host switches between the two.

// ServeNode serves the messages of the node until the connection ends.
func (t *Tenant) ServeNode(node *ipc.Conn) {
	node.Serve(func(m *ipc.Message) {
		defer m.Close()
		t.handleNode(node, m)
	})
}

// handleNode serves one message. Messages are served in their order: TypeCloseConns closes the
// connections of all earlier messages.
func (t *Tenant) handleNode(node *ipc.Conn, m *ipc.Message) {
	err := t.checkReady()
	switch {
	case m.Type == TypePing:
		err = nil
	case err != nil:
	case m.Type == TypeConn:
		err = t.serveConn(m)
	case m.Type == TypeCloseConns:
		t.gateway.CloseClientConns()
	default:
		err = outboard.Errorf(outboard.Protocol, "local protocol", "this process knows no message of type %.40q", m.Type)
	}
	if err != nil {
		t.log.Warn("a message of the node was not served", "type", m.Type, "error", err)
	}
	_ = node.Reply(m, nil, err) // the node may have ended
}

// checkReady refuses messages until Run is ready.
func (t *Tenant) checkReady() error {
	select {
	case <-t.ready:
		return nil
	default:
		return outboard.Errorf(outboard.Busy, "local protocol", "this process is not ready yet")
	}
}

// serveConn serves a client's connection that the node passes.
func (t *Tenant) serveConn(m *ipc.Message) error {
	if err := m.Lost(); err != nil {
		return err
	}
	conn, err := ipc.NetConn(m.File())
	if err == nil {
		t.gateway.ServeConn(conn, nil)
	}
	return err
}

// serveRequests accepts the connections over which the node forwards requests.
func (t *Tenant) serveRequests(ctx context.Context, ready func()) error {
	listener, err := listenForNode(t.config.RequestsSocket(), t.log)
	if err != nil {
		return fmt.Errorf("accept requests: %w", err)
	}
	defer os.Remove(t.config.RequestsSocket())
	ready()
	acceptor.Serve(ctx, listener, listener.AcceptUnix, acceptor.Options{Name: "requests", Log: t.log}, func(_ context.Context, conn *net.UnixConn) {
		t.gateway.ServeConn(conn, nil)
	})
	return nil
}

// serveUnrouted answers a request for an app that has no routes here. It waits for an app that is
// loading, as calls by hand do; if that takes too long or fails, the client is asked to try again:
// another node may serve the app.
func (t *Tenant) serveUnrouted(w http.ResponseWriter, r *http.Request) {
	app := gateway.AppOf(r.URL.Path)
	if _, err := t.apps.AwaitCurrent(r.Context(), app); err == nil && t.gateway.Serves(app) {
		t.gateway.ServeHTTP(w, r)
		return
	}
	gateway.NewProblem(t.unserved(app)).Write(w)
}

// unserved returns the reason that an app takes no requests here, without details that concern only
// its operator.
func (t *Tenant) unserved(app string) error {
	switch err := t.apps.Unavailable(app); {
	case app == "":
		return outboard.Errorf(outboard.NotFound, "", "the path names no app: it begins with one, as in /APP/...")
	case outboard.KindOf(err) == outboard.NotFound:
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q here", strings.ToValidUTF8(app, "\uFFFD"))
	}
	return outboard.Errorf(outboard.Unreachable, "", "app %q is not ready on this node: try again", app)
}
