package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

const defaultHTTP = "127.0.0.1:8080"

// ingress accepts connections for apps. It passes them to the process of the sole tenant or, if
// there are several tenants, to a forwarder, which determines the tenant of each request.
type ingress struct {
	listener *net.TCPListener // nil: none
	apps     *catalog.Catalog
	tenants  *host.Host
	models   *models
	health   *health.Board
	log      *slog.Logger
	// clientTimeout is how long a client may make this node wait; 0: the gateway's default.
	clientTimeout time.Duration
}

// addr returns the address at which requests for apps are accepted, "" for none.
func (i *ingress) addr() string {
	if i == nil || i.listener == nil {
		return ""
	}
	return i.listener.Addr().String()
}

// hosts returns the host names for which requests for apps are served, none for all. By default a
// port that only this machine reaches serves only the machine's names: otherwise an attacker could
// have his host name resolve to this machine (DNS rebinding), and reach the port from a browser on
// it. more are the operator's names.
func (i *ingress) hosts(more []string) []string {
	if i.listener == nil {
		return nil
	}
	addr, ok := i.listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() && len(more) == 0 {
		return nil
	}
	return append([]string{"localhost", "*.localhost", "127.0.0.1", "[::1]", addr.IP.String()}, more...)
}

// run accepts connections until ctx ends.
func (i *ingress) run(ctx context.Context, ready func()) error {
	if i.listener == nil {
		ready()
		<-ctx.Done()
		return nil
	}
	f := newForwarder(i)
	i.log.Info("requests to apps are accepted", "addr", i.addr())
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { f.run(ctx) })
	ready()
	acceptor.Serve(ctx, i.listener, i.listener.AcceptTCP, acceptor.Options{
		Name: "gateway", Log: i.log, Degraded: i.health.Reporter("gateway"),
	}, func(ctx context.Context, conn *net.TCPConn) { i.serve(ctx, conn, f) })
	return nil
}

// serve passes a connection to the process of the sole tenant, or else to the forwarder.
func (i *ingress) serve(ctx context.Context, conn *net.TCPConn, f *forwarder) {
	tenant, ok := i.tenants.Sole()
	if !ok {
		f.serve(conn)
		return
	}
	switch err := i.tenants.PassConn(ctx, tenant, conn); {
	case err == nil:
	case ctx.Err() != nil:
		_ = conn.Close() // the node is stopping
	case errors.Is(err, host.ErrShared):
		f.serve(conn)
	default:
		i.log.Warn("a connection was not passed", "tenant", tenant, "error", err)
		// The reason concerns only the operator.
		gateway.Refuse(conn, outboard.Errorf(outboard.Unreachable, "", "apps can't be served here at the moment"))
	}
}
