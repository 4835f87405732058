package tenant

import (
	"context"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/tenant/logs"
	"github.com/outboard-run/outboard/internal/tenant/peer"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/planner"
)

// servePeers serves the calls of the tenant's processes on other nodes.
func (t *Tenant) servePeers(ctx context.Context, ready func()) error {
	if t.config.CallsSocket == "" {
		ready()
		<-ctx.Done()
		return nil
	}
	return peer.Serve(ctx, ready, peer.Options{
		Tenant: t.config.Tenant, Node: t.config.Node, Socket: t.config.CallsSocket, Credential: t.config.DevicesKey, Log: t.log,
	}, peerHandler{t})
}

// surveyTimeout is how long nodes may take to report their progress.
const surveyTimeout = 2 * time.Second

// survey requests from all nodes their progress with the tenant's apps.
func (t *Tenant) survey(ctx context.Context) *app.Survey {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var s app.Survey
	s.Nodes, s.Failed = peer.CallAll(ctx, t.members.Peers(), t.peers.Progress)
	s.Nodes[t.config.Node] = t.apps.Progress()
	return &s
}

// peerHandler serves the calls of the tenant's other processes: it implements peer.Handler.
type peerHandler struct{ tenant *Tenant }

var _ peer.Handler = peerHandler{}

// RunStep implements peer.Handler.
func (h peerHandler) RunStep(ctx context.Context, call engine.FunctionCall) (engine.Outcome, error) {
	return h.tenant.steps.callForPeer(ctx, call)
}

// ReadFile implements peer.Handler.
func (h peerHandler) ReadFile(ctx context.Context, digest string) ([]byte, error) {
	return h.tenant.files.ReadLocal(ctx, digest)
}

// StoreFile implements peer.Handler.
func (h peerHandler) StoreFile(ctx context.Context, owner string, content []byte) error {
	_, err := h.tenant.files.SaveLocal(ctx, owner, content)
	return err
}

// Warm implements peer.Handler.
func (h peerHandler) Warm(ctx context.Context, f planner.Target) error {
	return warm(ctx, h.tenant.apps, f)
}

// Refresh implements peer.Handler.
func (h peerHandler) Refresh(ctx context.Context, id engine.ID) error {
	return h.tenant.engine.Refresh(ctx, id)
}

// Counts implements peer.Handler.
func (h peerHandler) Counts(app string) []peer.Counts { return localCounts(h.tenant.apps, app) }

// Progress implements peer.Handler.
func (h peerHandler) Progress() map[string]app.Progress { return h.tenant.apps.Progress() }

// LocateSteps implements peer.Handler.
func (h peerHandler) LocateSteps(id engine.ID) map[string]outboard.NodeID {
	return h.tenant.steps.nodes.of(id)
}

// Logs implements peer.Handler.
func (h peerHandler) Logs(ctx context.Context, q *peer.LogQuery, send func([]client.LogLine) error) error {
	return localLogs(ctx, h.tenant.gateway, h.tenant.config.Node, logs.Query{
		App: q.GetApp(), Function: q.GetFunction(), Lines: int(q.GetLines()), Follow: q.GetFollow(),
	}, send)
}
