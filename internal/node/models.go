package node

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/model/engine/builtin"
	"github.com/outboard-run/outboard/internal/model/keys"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/remote"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/traces"
)

// modelsDir is the folder in a node's data folder for the files of loaded models.
const modelsDir = "models"

// models are the models of a node: their repository, the loaded models, and their interfaces.
type models struct {
	node       *Node
	repository *repository.Repository
	peers      *remote.Peers
	server     *serve.Server
	remote     *remote.Server
	oip        *oip.Handler
	texts      *modelTexts
	guarded    http.Handler // the interfaces behind the keys
	spawner    *worker.Spawner
	listener   net.Listener // --models; nil: none
	bodies     *modelBodies
	requests   modelRequests
	uids       atomic.Uint32
	spans      *traces.Provider // nil: spans are not exported
	log        *slog.Logger
}

// modelFiles fetches artifacts from other nodes, once the models are open.
type modelFiles struct{ peers atomic.Pointer[remote.Peers] }

// Copies implements artifact.Source.
func (f *modelFiles) Copies(ctx context.Context, digest string) iter.Seq2[io.ReadCloser, error] {
	if p := f.peers.Load(); p != nil {
		return p.Copies(ctx, digest)
	}
	return func(yield func(io.ReadCloser, error) bool) {
		yield(nil, outboard.Errorf(outboard.NotFound, "", "there is no artifact %s here", digest))
	}
}

// openModels follows the repository and prepares to serve it.
func (n *Node) openModels(ctx context.Context) (_ lifecycle.Resource, err error) {
	log := n.opts.Log.With("plane", "model", "node", n.self.ID)
	m := &models{node: n, bodies: newModelBodies(), log: log}
	n.models = m
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	if m.repository, err = repository.Open(ctx, repository.Options{State: n.state, Self: n.self.ID, Logger: log}); err != nil {
		return nil, err
	}
	credential, socket := n.identities.models, absolute(n.folder.at(client.CallsSocketName))
	m.peers, err = remote.Open(ctx, remote.Options{
		Self: n.self.ID, Socket: socket, Credential: credential, State: n.state, Members: n.pool.Nodes, Log: log,
	})
	if err != nil {
		return nil, err
	}
	n.modelFiles.peers.Store(m.peers)
	m.spawner = &worker.Spawner{
		Command: append(slices.Clone(n.opts.Helper), "model-worker"), Namespaces: sandbox.DetectNamespaces(), Groups: n.groups, Log: log,
	}
	m.spawner.Open()
	servers, err := n.modelServers(m.spawner)
	if err != nil {
		return nil, err
	}
	if m.spans, err = traces.Open(ctx, string(n.self.ID), log); err != nil {
		return nil, err
	}
	var tracer trace.Tracer
	if m.spans != nil {
		tracer = m.spans.Tracer("github.com/outboard-run/outboard/internal/model/serve")
	}
	dir := absolute(n.folder.at(modelsDir))
	m.server, err = serve.Open(ctx, serve.Options{
		CheckSpace: func(bytes int64) error { return artifact.CheckSpace(dir, bytes) },
		Servers:    servers.names(), LaunchServer: servers.launcher,
		Self: n.self.ID, Repository: m.repository, Artifacts: n.artifacts, Peers: m.peers, Dir: dir,
		Launch: m.spawner.Launcher, Confine: m.confine, Libraries: builtin.Libraries, ParseTensor: oip.ParseTensor, Tracer: tracer, Metrics: n.registry, Log: log,
	})
	if err != nil {
		return nil, err
	}
	m.remote = &remote.Server{Self: n.self.ID, Models: m.server, Open: func(digest string) (remote.File, error) { return artifact.OpenSender(n.artifacts, digest) }, Socket: socket, Credential: credential, Log: log}
	m.oip = oip.New(oip.Options{Models: m.server, Version: n.opts.Version, SharedMemory: n.opts.ModelsSharedMemory, Allow: allowModel, Administer: administerModels, Readmit: n.keys.Readmit, Owner: ownerOf, Reserve: m.bodies.hold, CacheScope: cacheScopeOf, Count: countTokens, Log: log})
	m.texts = n.newModelTexts(m)
	m.guarded = n.keys.Guard(http.HandlerFunc(m.route), refuseModel)
	if n.opts.Models != "" && n.opts.Models != "none" {
		var config net.ListenConfig
		if m.listener, err = config.Listen(ctx, "tcp", n.opts.Models); err != nil {
			return nil, outboard.Errorf(outboard.Conflict, "", "%w: name another address with --models", err)
		}
	}
	return m, nil
}

// Close implements lifecycle.Resource.
func (m *models) Close() error {
	var err error
	if m.listener != nil {
		_ = m.listener.Close() // it may be closed already
	}
	if m.server != nil {
		err = m.server.Close()
	}
	if m.spawner != nil {
		m.spawner.Close()
	}
	err = errors.Join(err, m.spans.Close())
	if m.peers != nil {
		err = errors.Join(err, m.peers.Close())
	}
	if m.repository != nil {
		err = errors.Join(err, m.repository.Close())
	}
	return err
}

// The users of models' processes on a node that runs as root. The range of sessions' users ends
// below.
const (
	firstModelUID = 0x70020000
	modelUIDs     = 1 << 16
)

// confine returns the sandbox of a model's process.
func (m *models) confine(dir, files string, readable []string) *worker.Confinement {
	c := &worker.Confinement{
		Namespaces: m.spawner.Namespaces, Dir: dir, Files: files,
		Readable: append(slices.Clone(readable), m.node.opts.Sandbox.Readable...),
		Devices:  m.node.opts.Sandbox.Devices, Require: m.node.opts.Sandbox.Require,
	}
	if os.Geteuid() == 0 && !m.spawner.Namespaces.User() {
		c.UID = firstModelUID + int(m.uids.Add(1)%modelUIDs)
	}
	return c
}

// addr returns the address of --models, "" for none.
func (m *models) addr() string {
	if m == nil || m.listener == nil {
		return ""
	}
	return m.listener.Addr().String()
}

// runPeers serves requests of other nodes until ctx ends.
func (m *models) runPeers(ctx context.Context, ready func()) error { return m.remote.Run(ctx, ready) }

// awaitModel waits for the first model, and reports whether there is one before ctx ends. Until
// then the process of a sole tenant gets the gateway's connections, and there is no service.
func (m *models) awaitModel(ctx context.Context) bool {
	for {
		changed := m.repository.Changed()
		if len(m.repository.List()) > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// ServeHTTP serves the interfaces of models to clients that the pool's API keys admit. Spans of a
// request continue the trace of its headers (W3C Trace Context).
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.spans != nil {
		r = r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
	}
	m.guarded.ServeHTTP(w, r)
}

// administerModels returns an error unless a request may load and unload models, which changes them for
// all clients: a request of this machine while the pool has no keys, or one whose API key may. Apps need
// no key, so theirs may not.
func administerModels(ctx context.Context) error {
	if isTenant(ctx) {
		return outboard.Errorf(outboard.Denied, "", "apps may use models, not load or unload them: an operator does, or a client with an API key that `outboard keys create NAME --admin` makes")
	}
	return keys.FromContext(ctx).Administers()
}

// isTenant reports whether a call comes from the process of a tenant: from a function or a workflow.
func isTenant(ctx context.Context) bool {
	c, ok := fabric.CallerFromContext(ctx)
	return ok && strings.HasPrefix(c.Tenant, calls.TenantIdentity)
}

// allowModel returns an error unless the API key of a request may use a model.
func allowModel(ctx context.Context, name string) error { return keys.FromContext(ctx).Allows(name) }

// ownerOf returns the ID of a request's API key, which identifies the client.
func ownerOf(ctx context.Context) string {
	if g := keys.FromContext(ctx); g != nil {
		return g.Key.ID
	}
	return ""
}

// cacheScopeOf returns the scope within which requests may share the state of earlier prompts: the
// API key or, without a key, the caller of the fabric, and "" for the clients of this machine's
// HTTP ports while the pool has no key.
func cacheScopeOf(ctx context.Context) string {
	if g := keys.FromContext(ctx); g != nil {
		return "key/" + g.Key.ID
	}
	if c, ok := fabric.CallerFromContext(ctx); ok && c.Tenant != "" {
		return callerScope(c.Tenant)
	}
	return ""
}

// callerScope returns the scope of the requests of a caller of the fabric.
func callerScope(identity string) string { return "caller/" + identity }

// countTokens counts the tokens of a generation for the API key of its request.
func countTokens(ctx context.Context, prompt, generated int) {
	keys.FromContext(ctx).Count(prompt, generated)
}

// route serves the interface to which a path belongs.
func (m *models) route(w http.ResponseWriter, r *http.Request) {
	client := ownerOf(r.Context())
	leave, err := m.requests.enter(client)
	if err != nil {
		refuseModel(w, r, err)
		return
	}
	defer leave()
	app := gateway.AppOf(r.URL.Path)
	perValue := int64(valueSize)
	if app == "v2" {
		perValue = 0
	}
	defer m.bodies.countBody(r, client, perValue)()
	switch {
	case app == "v1":
		m.texts.openai.ServeHTTP(w, r)
	case app == "v2":
		m.oip.ServeHTTP(w, r)
	case app == "api", r.URL.Path == "/": // by which Ollama's command finds its server
		m.texts.ollama.ServeHTTP(w, r)
	default:
		gateway.NewProblem(outboard.Errorf(outboard.NotFound, "", "path %q: the interfaces of models begin with /v1, /v2 and /api", r.URL.Path)).Write(w)
	}
}

// loadLimit is how long a pushed model may take to load before the push is answered.
const loadLimit = 10 * time.Minute
