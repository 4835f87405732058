package serve

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// A Bypass lets a client on this node call the worker of a model without this process while it is
// the model's only client. Its gate is closed as soon as another request arrives, and opened when the
// client sends a request through this process and no other one was in progress for bypassQuiet.
type Bypass struct {
	*worker.Bypass
	// Timeout is the deadline of calls that have no earlier one.
	Timeout time.Duration

	instance *instance
	name     string // by which the client knows the model: its name or an alias
	client   string
	revoked  bool // the gate stays closed; mu of the instance's bypasses protects it
}

// bypassQuiet is how long a client must have been a model's only one before it may bypass the queue.
const bypassQuiet = 10 * time.Millisecond

// bypasses are the present and the earlier bypasses of an instance. At most one exists at a time.
type bypasses struct {
	setup   sync.Mutex // held while a bypass begins or ends
	current atomic.Pointer[Bypass]

	mu    sync.Mutex
	busy  time.Time           // the last request that was not the only one, or another client's
	ended worker.BypassCounts // of earlier bypasses
	seen  uint64              // calls of the current one when another client last asked for one
	known uint64              // calls when they were last counted as a use
}

// OpenBypass returns a bypass for a client to a model that this node serves and no other node would
// serve faster. It fails if another client uses its own bypass to the model, or if the model needs
// the queue for each request. The caller ends the bypass by End.
func OpenBypass(ctx context.Context, s *Server, client, name string, size int) (*Bypass, error) {
	v, err := s.version(name, "")
	if err != nil {
		return nil, err
	}
	if reason := whyNoBypass(s, v); reason != "" {
		return nil, errNoBypass(name, reason)
	}
	if list := s.candidates(v, false); len(list) == 0 || list[0].Node != s.opts.Self {
		return nil, errNoBypass(name, "another node serves the model")
	}
	i := currentInstance(s, v)
	if i == nil {
		return nil, errNoBypass(name, "the version in force is not loaded")
	}
	i.acquire()
	defer i.release()
	b := &Bypass{Timeout: cmp.Or(time.Duration(v.Config.Queue.Timeout), defaultTimeout), instance: i, name: name, client: client}
	if err := i.bypasses.begin(ctx, b, size); err != nil {
		return nil, err
	}
	if !b.isCurrent() { // the repository has changed in the meantime, and endBypasses may not have seen b
		b.end(false)
		return nil, errNoBypass(name, "another version is in force")
	}
	return b, nil
}

// isCurrent reports whether the bypass leads to the version that its client's requests would reach
// through this process.
func (b *Bypass) isCurrent() bool {
	s := b.instance.server
	m, err := s.opts.Repository.Get(b.name)
	return err == nil && keyOf(m.Current()) == b.instance.key && whyNoBypass(s, m.Current()) == ""
}

func errNoBypass(name, reason string) error {
	return outboard.Errorf(outboard.Busy, "", "no bypass to the model %s: %s", name, reason)
}

// whyNoBypass returns the reason for which each request for a version has to go through this
// process, "" if there is none.
func whyNoBypass(s *Server, v *repository.Version) string {
	switch c := &v.Config; {
	case s.opts.Tracer != nil:
		return "spans of requests are recorded"
	case isCanary(v):
		return "the version in force gets a part of the requests"
	case c.NaN == "refuse":
		return "inputs are searched for NaNs"
	case c.Server != "":
		return "another server executes it"
	case c.Batching.Delay > 0:
		return "requests wait for others"
	}
	return ""
}

// currentInstance returns the instance that gets all requests for a version, nil if there is none.
func currentInstance(s *Server, v *repository.Version) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[v.Name]
	if r == nil || r.current.key != keyOf(v) || !isUsable(r.current) || r.previous != nil || s.closed {
		return nil
	}
	return r.current
}

// begin opens a bypass to the instance's worker, in place of one that is unused or of the same
// client.
func (p *bypasses) begin(ctx context.Context, b *Bypass, size int) error {
	p.setup.Lock()
	defer p.setup.Unlock()
	i := b.instance
	if old := p.current.Load(); old != nil {
		if old.client != b.client && p.inUse(old) {
			return errNoBypass(b.name, "another client uses one")
		}
		ending, cancel := context.WithTimeout(ctx, bypassGrace)
		p.end(ending, old, false)
		cancel()
	}
	i.mu.Lock()
	w := i.worker
	i.mu.Unlock()
	if i.ended.Load() || isDone(w.Done()) {
		return errNoBypass(b.name, "it is being unloaded")
	}
	var err error
	if b.Bypass, err = w.OpenBypass(ctx, size, b.Timeout); err != nil {
		return err
	}
	p.mu.Lock()
	p.seen, p.known = 0, 0
	p.mu.Unlock()
	p.current.Store(b)
	return nil
}

// inUse reports whether a bypass has not ended and was used since inUse was last called.
func (p *bypasses) inUse(b *Bypass) bool {
	if isDone(b.Done()) {
		return false
	}
	counts := b.Counts()
	calls := counts.Succeeded + counts.Failed
	p.mu.Lock()
	defer p.mu.Unlock()
	used := calls != p.seen
	p.seen = calls
	return used
}

// end ends a bypass, after its call in progress, and adds its counts to the earlier ones'. setup
// must be held.
func (p *bypasses) end(ctx context.Context, b *Bypass, cancel bool) {
	if p.current.Load() != b {
		return // it has ended before
	}
	_ = b.Close(ctx, cancel) // the worker may have ended
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended.Add(b.Counts())
	p.current.Store(nil)
}

// endCurrent ends the present bypass, after its call in progress or when ctx ends.
func (p *bypasses) endCurrent(ctx context.Context) {
	if b := p.current.Load(); b != nil {
		p.revoke(b)
	}
	p.setup.Lock() // a bypass that is about to begin is ended, too
	defer p.setup.Unlock()
	if b := p.current.Load(); b != nil {
		p.end(ctx, b, false)
	}
}

// revoke closes the gate of a bypass for good.
func (p *bypasses) revoke(b *Bypass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.revoked = true
	b.SetOpen(false)
}

// End ends a bypass whose client is gone, and cancels its call in progress.
func (b *Bypass) End() { b.end(true) }

func (b *Bypass) end(cancelCall bool) {
	p := &b.instance.bypasses
	ctx, cancel := context.WithTimeout(b.instance.server.life, bypassGrace)
	defer cancel()
	p.setup.Lock()
	defer p.setup.Unlock()
	p.end(ctx, b, cancelCall)
}

// bypassGrace bounds the wait for the call in progress of a bypass that ends. The worker itself
// continues to wait for it.
const bypassGrace = 10 * time.Second

// observe opens or closes the gate of the present bypass for a request that goes through this
// process. alone says that no other request is in progress.
func (p *bypasses) observe(r *Request, alone bool) {
	b := p.current.Load()
	if b == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if alone && !r.Local && r.Sequence.Client == b.client && r.Sequence.ID == "" {
		if now.Sub(p.busy) >= bypassQuiet && !b.revoked {
			b.SetOpen(true)
		}
		return
	}
	p.busy = now
	b.SetOpen(false)
}

// counts returns the counts of all calls through bypasses.
func (p *bypasses) counts() worker.BypassCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.ended
	if b := p.current.Load(); b != nil {
		sum.Add(b.Counts())
	}
	return sum
}

// wasUsed reports whether the present bypass was used since wasUsed was last called.
func (p *bypasses) wasUsed() bool {
	b := p.current.Load()
	if b == nil {
		return false
	}
	counts := b.Counts()
	calls := counts.Succeeded + counts.Failed
	p.mu.Lock()
	defer p.mu.Unlock()
	used := calls != p.known
	p.known = calls
	return used
}

// addBypassed adds the calls that bypassed the queue to a queue's counts. Each is an execution.
func addBypassed(s *queue.Stats, c worker.BypassCounts) {
	s.Succeeded += c.Succeeded
	s.Failed += c.Failed
	s.Rows += c.Rows
	s.Executions += c.Succeeded + c.Failed
	s.Total += c.Time
	s.Compute += c.Time
	s.FailedTime += c.FailedTime
}

// endBypasses ends the bypasses by which clients would reach another version than the one in force.
// mu must be held.
func endBypasses(s *Server) {
	for _, i := range s.loaded {
		b := i.bypasses.current.Load()
		if b == nil || b.isCurrent() {
			continue
		}
		i.bypasses.revoke(b)
		s.serving.Go(func() { b.end(false) })
	}
}
