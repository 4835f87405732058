package node

import (
	"context"
	"net"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

const defaultHTTP = "127.0.0.1:8080"

// webAddr is where requests to apps are taken.
func (n *Node) webAddr() string {
	if n.web == nil {
		return ""
	}
	return n.web.Addr().String()
}

// serveGateway takes connections for apps and hands each to the process of the
// tenant that its first request is for.
func (n *Node) serveGateway(ctx context.Context, ready func()) error {
	if n.web == nil {
		ready()
		<-ctx.Done()
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = n.web.Close() })
	defer stop()
	n.log.Info("requests to apps are taken", "addr", n.webAddr())
	ready()
	var handing sync.WaitGroup
	defer handing.Wait()
	for {
		conn, err := n.web.AcceptTCP()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			n.log.Warn("accept a request", "error", err)
			pause(ctx)
			continue
		}
		handing.Go(func() { n.handOver(ctx, conn) })
	}
}

// handOver finds the process that a connection is for.
func (n *Node) handOver(ctx context.Context, conn *net.TCPConn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	app, first, err := gateway.Peek(conn, gateway.Limits{})
	if !stop() {
		return
	}
	tenant := n.tenantOf(app)
	switch {
	case err != nil || tenant != "":
	case app == "":
		err = outboard.Errorf(outboard.NotFound, "", "the path names no app: it begins with one, as in /APP/...")
	default:
		err = outboard.Errorf(outboard.NotFound, "", "there is no app %q here", app)
	}
	if err != nil {
		gateway.Refuse(conn, err)
		return
	}
	switch err := n.tenants.Hand(ctx, tenant, conn, first); {
	case err == nil:
	case ctx.Err() != nil:
		_ = conn.Close() // the node ends, and nobody waits for it
	default:
		n.log.Warn("a connection was not handed over", "app", app, "tenant", tenant, "error", err)
		// Why is the operator's to know.
		gateway.Refuse(conn, outboard.Errorf(outboard.Unreachable, "", "app %q can't be served here at the moment", app))
	}
}
