package node

import (
	"context"
	"net"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// ModelBypassSocket is the name of the socket in the data folder where the processes of tenants get
// bypasses to the models that this node serves. A connection is a bypass.
const ModelBypassSocket = "bypass.sock"

// serveBypass serves one connection.
func (m *models) serveBypass(ctx context.Context, socket *net.UnixConn) {
	conn := ipc.New(socket, worker.BypassOptions)
	err := m.grantBypass(ctx, conn)
	_ = conn.Send(worker.TypeBypassEnded, ipc.ReasonOf(err)) // the process may be gone
}

// grantBypass opens a bypass for a tenant's process, until the process hangs up or the bypass ends.
func (m *models) grantBypass(ctx context.Context, conn *ipc.Conn) error {
	var r worker.BypassRequest
	if err := receiveFirst(ctx, conn, worker.TypeBypassRequest, &r); err != nil {
		return err
	}
	identity := m.node.identities.identify(r.Key)
	if !strings.HasPrefix(identity, calls.TenantIdentity) {
		return outboard.Errorf(outboard.Denied, "bypass", "no process of this node has this key")
	}
	b, err := serve.OpenBypass(ctx, m.server, callerScope(identity), r.Model, r.Size)
	if err != nil {
		return err
	}
	defer b.End()
	if err := conn.Send(worker.TypeBypassGranted, worker.BypassGranted{Timeout: b.Timeout}, b.Files()...); err != nil {
		return err
	}
	awaitBypass(ctx, conn, b)
	return nil
}

// awaitBypass returns when the process hangs up, the bypass ends, or ctx is done.
func awaitBypass(ctx context.Context, conn *ipc.Conn, b *serve.Bypass) {
	ctx, cancel := context.WithCancel(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-b.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	if m, err := conn.Receive(ctx); err == nil {
		m.Close() // the process has no more messages to send
	}
	cancel()
	<-watching
}
