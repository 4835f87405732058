// Package textpool offers the text models of the pool to the protocols: a generation continues on
// another node when its node is lost, and API keys limit and count the use of models.
package textpool

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/model/keys"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/text"
)

// Options configure a Pool.
type Options struct {
	Server *serve.Server
	// CacheScope returns the scope of a request's generations; if it is nil, all requests have the
	// same scope.
	CacheScope func(ctx context.Context) string
	// Open opens an artifact that is on this node.
	Open    func(digest string) (*os.File, error)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// A Pool provides the text models of the pool. Any number of goroutines may use it.
type Pool struct {
	opts    Options
	metrics *metrics

	mu      sync.Mutex
	headers map[string]*gguf.File // by digest; nil for a file that is not GGUF
}

var _ text.Backend = (*Pool)(nil)

// New returns a Pool.
func New(opts Options) *Pool {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.CacheScope == nil {
		opts.CacheScope = func(context.Context) string { return "" }
	}
	return &Pool{opts: opts, metrics: newMetrics(opts.Metrics), headers: map[string]*gguf.File{}}
}

// Open implements text.Backend. ctx has the request's grant.
func (p *Pool) Open(ctx context.Context, name string) (text.Model, func(), error) {
	grant := keys.FromContext(ctx)
	if err := grant.Allows(name); err != nil {
		return nil, nil, err
	}
	scope := p.opts.CacheScope(ctx)
	type version struct{ model, number string }
	var first atomic.Pointer[version] // of the first replica
	open := func(ctx context.Context, prompt []int32, exclude []outboard.NodeID) (text.Replica, error) {
		v := cmp.Or(first.Load(), &version{model: name})
		t, release, err := p.opts.Server.OpenText(ctx, v.model, v.number, serve.Prompt{Tokens: prompt, CacheScope: scope}, exclude...)
		if err != nil {
			return text.Replica{}, err
		}
		first.CompareAndSwap(nil, &version{t.Version.Name, t.Pinned}) // an alias may move
		return text.Replica{Model: t, Node: t.Node, Release: release}, nil
	}
	m, err := text.OpenResuming(ctx, func(ctx context.Context, exclude []outboard.NodeID) (text.Replica, error) {
		return open(ctx, nil, exclude)
	})
	if err != nil {
		return nil, nil, err
	}
	m.Name = name
	m.Place = func(ctx context.Context, prompt []int32) (text.Replica, error) { return open(ctx, prompt, nil) }
	m.Resumed = func(lost, next outboard.NodeID) {
		p.metrics.resumed.WithLabelValues(name).Inc()
		p.opts.Log.Warn("a generation goes on elsewhere", "model", name, "lost", lost, "next", next)
	}
	return &counted{m, p.metrics, grant, name, scope}, m.Release, nil
}

// Keep determines how long a model stays loaded after its last use, as [serve.Keep] does, if
// the request's grant allows to load and unload models.
func (p *Pool) Keep(ctx context.Context, name string, idle time.Duration) error {
	grant := keys.FromContext(ctx)
	if err := cmp.Or(grant.Administers(), grant.Allows(name)); err != nil {
		return err
	}
	return serve.Keep(ctx, p.opts.Server, name, idle)
}

// counted is a model whose generations are counted and measured.
type counted struct {
	text.Model
	metrics *metrics
	grant   *keys.Grant
	name    string
	scope   string
}

// Generate implements text.Model.
func (c *counted) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	w := c.metrics.startGeneration(c.name)
	g.CacheScope = c.scope
	usage, err := c.Model.Generate(ctx, g, func(t engine.Token) error {
		w.token(t)
		return emit(t)
	})
	w.end(usage)
	c.grant.Count(usage.PromptTokens, usage.GeneratedTokens)
	return usage, err
}

// Embed implements text.Model.
func (c *counted) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	v, err := c.Model.Embed(ctx, tokens)
	if err == nil {
		c.grant.Count(len(tokens), 0)
	}
	return v, err
}

// List implements text.Backend.
func (p *Pool) List(ctx context.Context) ([]text.Description, error) {
	grant := keys.FromContext(ctx)
	var list []text.Description
	for _, x := range p.opts.Server.Index() {
		if isText(&x.Version) && grant.Allows(x.Version.Name) == nil {
			list = append(list, p.describe(&x))
		}
	}
	return list, nil
}

// isText reports whether a version is a model for text.
func isText(v *repository.Version) bool {
	return strings.HasSuffix(v.Main, ".gguf") || v.Engine == "llama" || v.Engine == "process"
}

func (p *Pool) describe(x *serve.Index) text.Description {
	v := &x.Version
	file := v.Files[v.Main]
	d := text.Description{
		Name: v.Name, Aliases: v.Config.Aliases, Modified: v.Applied, Size: v.Bytes(), Digest: strings.TrimPrefix(file.Digest, "sha256:"), Loaded: x.State == serve.StateReady,
	}
	if d.Loaded {
		d.Memory = d.Size
	}
	if h := p.header(file.Digest); h != nil {
		d.Architecture, d.Parameters, d.ChatTemplate = h.Architecture(), h.Parameters(), h.Text("tokenizer.chat_template")
		n, _ := h.Of("context_length")
		d.Context, d.Quantization = int(min(n, 1<<30)), h.Quantization()
	}
	return d
}

// header returns the header of a file on this node, nil for a file that isn't on it.
func (p *Pool) header(digest string) *gguf.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, known := p.headers[digest]; known {
		return h
	}
	in, err := p.opts.Open(digest)
	if err != nil {
		return nil
	}
	defer func() { _ = in.Close() }()
	h, err := gguf.Read(in, gguf.Limits{Array: 1})
	if err != nil {
		h = nil
	}
	p.headers[digest] = h
	return h
}
