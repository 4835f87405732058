package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A tenant's process has two ways to requests. While the node runs no other tenant's process,
// it passes whole connections of clients, and this process reads their requests itself. As
// soon as there is another tenant, the node reads every request, decides whose it is, and
// forwards it over a connection of its own: so no process ever reads another tenant's
// request. internal/tenant/host has the switch.

// handovers has the connections that the node passes.
type handovers struct {
	mu     sync.Mutex
	closed uint32 // the newest epoch whose connections are closed
}

// serveConns accepts the connections of clients that the node passes, and the connections
// over which it forwards requests.
func (t *Tenant) serveConns(ctx context.Context, ready func()) error {
	conns, err := unixsock.Listen(t.config.ConnsSocket())
	if err != nil {
		return fmt.Errorf("accept connections: %w", err)
	}
	defer os.Remove(t.config.ConnsSocket())
	requests, err := unixsock.Listen(t.config.RequestsSocket())
	if err != nil {
		return errors.Join(fmt.Errorf("accept requests: %w", err), conns.Close())
	}
	defer os.Remove(t.config.RequestsSocket())
	stop := context.AfterFunc(ctx, func() { _, _ = conns.Close(), requests.Close() })
	defer stop()
	ready()
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			conn, err := requests.Accept()
			if err != nil {
				return // the listener is closed
			}
			t.gateway.ServeConn(conn, nil)
		}
	})
	defer forwarding.Wait()
	defer requests.Close()
	return t.acceptHandovers(ctx, conns)
}

func (t *Tenant) acceptHandovers(ctx context.Context, conns *net.UnixListener) error {
	var receiving sync.WaitGroup
	defer receiving.Wait()
	for {
		carrier, err := conns.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connections: %w", err)
		}
		receiving.Go(func() {
			conn, epoch, err := receiveConn(carrier)
			if err = errors.Join(err, carrier.Close()); err != nil {
				t.log.Warn("a connection was not received", "error", err)
				return
			}
			t.serveHandover(conn, epoch)
		})
	}
}

// serveHandover serves a connection, unless those of its epoch are closed.
func (t *Tenant) serveHandover(conn net.Conn, epoch uint32) {
	t.handovers.mu.Lock()
	defer t.handovers.mu.Unlock()
	if epoch <= t.handovers.closed {
		_ = conn.Close() // it has brought nothing yet
		return
	}
	t.gateway.ServeConn(conn, nil)
}

// close closes the connections of an epoch and those before, after the requests in progress.
func (h *handovers) close(epoch uint32, g *gateway.Gateway) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch > h.closed {
		h.closed = epoch
		g.CloseClientConns()
	}
}

// receiveConn receives a connection and its epoch.
func receiveConn(carrier *net.UnixConn) (net.Conn, uint32, error) {
	head := make([]byte, 4)
	file, err := unixsock.Receive(carrier, head)
	if err != nil {
		return nil, 0, err
	}
	if file == nil {
		return nil, 0, errors.New("no descriptor was passed")
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	return conn, binary.LittleEndian.Uint32(head), err
}

// loadingLimit is how long a request waits for its app. Then the client is told to try again:
// another node may serve it.
const loadingLimit = 10 * time.Second

// serveUnrouted answers a request for an app that has no routes here. One that is loading is
// waited for.
func (t *Tenant) serveUnrouted(w http.ResponseWriter, r *http.Request) {
	app := gateway.AppOf(r.URL.Path)
	ctx, cancel := context.WithTimeout(r.Context(), loadingLimit)
	defer cancel()
	if err := t.apps.AwaitServing(ctx, app); err == nil && t.gateway.Serves(app) {
		t.gateway.ServeHTTP(w, r)
		return
	}
	gateway.NewProblem(t.unserved(app)).Write(w)
}

// unserved says why an app takes no requests here, without details that concern only its
// operator.
func (t *Tenant) unserved(app string) error {
	switch err := t.apps.Unavailable(app); {
	case app == "":
		return outboard.Errorf(outboard.NotFound, "", "the path names no app: it begins with one, as in /APP/...")
	case outboard.KindOf(err) == outboard.NotFound:
		return outboard.Errorf(outboard.NotFound, "", "there is no app %q here", strings.ToValidUTF8(app, "\uFFFD"))
	}
	return outboard.Errorf(outboard.Unreachable, "", "app %q is not ready on this node: try again", app)
}
