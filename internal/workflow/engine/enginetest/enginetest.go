// Package enginetest implements the dependencies of a workflow engine in memory: a pool that
// several engines share, with nodes that can be killed at any moment.
package enginetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// ErrDead is the error of a killed node.
var ErrDead = errors.New("this node was killed")

// Pool is the state that outlives nodes. All methods may be called by several goroutines.
type Pool struct {
	mu        sync.Mutex
	seq       uint64
	logs      map[string][]state.Record
	owners    map[engine.ID]*Node
	saved     map[engine.ID]map[string][]byte // by digest
	workflows map[string]*dsl.Workflow
	listeners map[int]listener
	events    []arrival
	next      int
	changed   chan struct{} // closed when an owner leaves
}

type listener struct {
	node *Node
	app  string
	f    func(core.CloudEvent)
}

type arrival struct {
	app   string
	at    time.Time
	event core.CloudEvent
}

// New creates an empty pool.
func New() *Pool {
	return &Pool{
		logs: map[string][]state.Record{}, owners: map[engine.ID]*Node{}, saved: map[engine.ID]map[string][]byte{},
		workflows: map[string]*dsl.Workflow{}, listeners: map[int]listener{}, changed: make(chan struct{}),
	}
}

// Deploy adds a workflow to version 1 of an app.
func (p *Pool) Deploy(app, name string, w *dsl.Workflow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workflows[app+"/"+name] = w
}

// Undeploy removes a workflow.
func (p *Pool) Undeploy(app, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workflows, app+"/"+name)
}

// Records returns the log of an execution.
func (p *Pool) Records(key string) []state.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.logs[key])
}

// Claims returns how many executions are claimed.
func (p *Pool) Claims() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.owners)
}

// Owner returns the node that has claimed an execution, "" for none.
func (p *Pool) Owner(id engine.ID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.owners[id]; {
	case n == nil:
		return ""
	case n.Dead():
		return n.name + " (dead)"
	default:
		return n.name
	}
}

// Saved returns how many values of an execution are saved.
func (p *Pool) Saved(id engine.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.saved[id])
}

// Node is one node's view of the pool: all dependencies of an engine but functions.
type Node struct {
	pool *Pool
	name string
	// Fault is called before and after each operation of the node, with the operation's name. It
	// may kill the node, or return an error, with which the operation fails. It must not be changed
	// once the node is used.
	Fault func(n *Node, op string, after bool) error

	mu     sync.Mutex
	dead   bool
	arenas map[engine.ID][]byte
}

// Node creates a node.
func (p *Pool) Node(name string) *Node {
	return &Node{pool: p, name: name, arenas: map[engine.ID][]byte{}}
}

// Options returns the options of an engine on the node.
func (n *Node) Options(functions engine.Functions) engine.Options {
	return engine.Options{
		Tenant: "test", Node: n.name, Log: n, Claims: claims{n}, Workflows: n, Values: values{n}, Events: n,
		Functions: functions,
	}
}

// Kill kills the node: its operations have no effect any more, and its executions can be taken
// over.
func (n *Node) Kill() {
	n.mu.Lock()
	n.dead = true
	n.arenas = nil
	n.mu.Unlock()
	n.pool.mu.Lock()
	defer n.pool.mu.Unlock()
	close(n.pool.changed)
	n.pool.changed = make(chan struct{})
}

// Dead reports whether the node was killed.
func (n *Node) Dead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// step runs f unless the node is dead or has a fault.
func (n *Node) step(ctx context.Context, op string, f func() error) error {
	if n.Fault != nil {
		if err := n.Fault(n, op, false); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n.pool.mu.Lock()
	if n.Dead() {
		n.pool.mu.Unlock()
		return ErrDead
	}
	err := f()
	n.pool.mu.Unlock()
	if n.Fault != nil && err == nil {
		err = n.Fault(n, op, true)
	}
	if n.Dead() {
		return ErrDead
	}
	return err
}

// Append implements engine.Log.
func (n *Node) Append(ctx context.Context, key string, after uint64, data ...[]byte) (uint64, error) {
	var seq uint64
	err := n.step(ctx, "append", func() error {
		log := n.pool.logs[key]
		last := uint64(0)
		if len(log) > 0 {
			last = log[len(log)-1].Seq
		}
		if last != after {
			return fmt.Errorf("append to %s: %w", key, state.ErrConflict)
		}
		for _, d := range data {
			n.pool.seq++
			log = append(log, state.Record{Key: key, Seq: n.pool.seq, Data: slices.Clone(d), Time: time.Now()})
		}
		n.pool.logs[key], seq = log, n.pool.seq
		return nil
	})
	return seq, err
}

// Read implements engine.Log.
func (n *Node) Read(ctx context.Context, key string) ([]state.Record, error) {
	var records []state.Record
	err := n.step(ctx, "read", func() error {
		records = slices.Clone(n.pool.logs[key])
		return nil
	})
	return records, err
}

// Heads implements engine.Log.
func (n *Node) Heads(ctx context.Context, prefix string) (map[string]uint64, error) {
	heads := map[string]uint64{}
	err := n.step(ctx, "heads", func() error {
		for key, records := range n.pool.logs {
			if strings.HasPrefix(key, prefix) {
				heads[key] = uint64(len(records))
			}
		}
		return nil
	})
	return heads, err
}

// Scan implements engine.Log.
func (n *Node) Scan(ctx context.Context, prefix string, f func([]state.Record) error) error {
	var all []state.Record
	err := n.step(ctx, "scan", func() error {
		for key, records := range n.pool.logs {
			if strings.HasPrefix(key, prefix) {
				all = append(all, records...)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b state.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := range all {
		if err == nil {
			err = f(all[i : i+1])
		}
	}
	return err
}

// Purge implements engine.Log.
func (n *Node) Purge(ctx context.Context, key string) error {
	return n.step(ctx, "purge", func() error {
		delete(n.pool.logs, key)
		return nil
	})
}

// Workflow implements engine.Workflows.
func (n *Node) Workflow(ctx context.Context, app string, _ int, name string) (*dsl.Workflow, int, error) {
	var w *dsl.Workflow
	err := n.step(ctx, "workflow", func() error {
		if w = n.pool.workflows[app+"/"+name]; w == nil {
			return &outboard.Error{Op: "workflow " + app + "/" + name, Kind: outboard.NotFound, Err: engine.ErrNotFound}
		}
		return nil
	})
	return w, 1, err
}

// Find implements engine.Workflows.
func (n *Node) Find(ctx context.Context, app string, _ int, run *dsl.Run) (string, error) {
	name := ""
	err := n.step(ctx, "find", func() error {
		for key, w := range n.pool.workflows {
			if of, rest, _ := strings.Cut(key, "/"); of == app && run.Matches(w) {
				name = rest
				return nil
			}
		}
		return &outboard.Error{Op: "workflow " + run.Name, Kind: outboard.NotFound, Err: engine.ErrNotFound}
	})
	return name, err
}

// Publish implements engine.Events.
func (n *Node) Publish(ctx context.Context, app string, event core.CloudEvent) error {
	return n.step(ctx, "publish", func() error {
		p := n.pool
		p.events = append(p.events, arrival{app, time.Now(), event})
		for _, l := range p.listeners {
			if l.app == app && !l.node.Dead() {
				go l.f(event)
			}
		}
		return nil
	})
}

// Published returns the published events, duplicates included.
func (p *Pool) Published() []core.CloudEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]core.CloudEvent, len(p.events))
	for i, e := range p.events {
		out[i] = e.event
	}
	return out
}

// Subscribe implements engine.Events. It delivers the events since then at once.
func (n *Node) Subscribe(ctx context.Context, app string, since time.Time, f func(core.CloudEvent)) (func(), error) {
	var id int
	var past []core.CloudEvent
	err := n.step(ctx, "subscribe", func() error {
		n.pool.next++
		id = n.pool.next
		n.pool.listeners[id] = listener{n, app, f}
		for _, a := range n.pool.events {
			if a.app == app && !a.at.Before(since) {
				past = append(past, a.event)
			}
		}
		return nil
	})
	for _, event := range past {
		f(event)
	}
	return func() {
		n.pool.mu.Lock()
		defer n.pool.mu.Unlock()
		delete(n.pool.listeners, id)
	}, err
}

// claims implements engine.Claims for a Node.
type claims struct{ n *Node }

func (c claims) Claim(ctx context.Context, id engine.ID) error {
	return c.n.step(ctx, "claim", func() error {
		if owner := c.n.pool.owners[id]; owner != nil && owner != c.n && !owner.Dead() {
			return engine.ErrClaimed
		}
		c.n.pool.owners[id] = c.n
		return nil
	})
}

func (c claims) ClaimNew(ctx context.Context, id engine.ID) error { return c.Claim(ctx, id) }

func (c claims) Release(ctx context.Context, id engine.ID) error {
	return c.n.step(ctx, "release", func() error {
		if c.n.pool.owners[id] == c.n {
			delete(c.n.pool.owners, id)
		}
		return nil
	})
}

func (c claims) Orphans(ctx context.Context, f func(engine.ID)) error {
	for {
		c.n.pool.mu.Lock()
		changed := c.n.pool.changed
		var orphans []engine.ID
		for id, owner := range c.n.pool.owners {
			if owner.Dead() {
				orphans = append(orphans, id)
			}
		}
		c.n.pool.mu.Unlock()
		for _, id := range orphans {
			f(id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// values implements engine.Values for a Node. An arena is as long as its content.
type values struct{ n *Node }

func (v values) Put(ctx context.Context, id engine.ID, data []byte) (engine.Extent, error) {
	var at engine.Extent
	err := v.n.step(ctx, "put", func() error {
		at = v.n.put(id, data)
		return nil
	})
	return at, err
}

// put copies bytes into an arena of the node.
func (n *Node) put(id engine.ID, data []byte) engine.Extent {
	n.mu.Lock()
	defer n.mu.Unlock()
	arena := n.arenas[id]
	at := engine.Extent{Offset: int64(len(arena)), Size: int64(len(data))}
	if !n.dead {
		n.arenas[id] = append(arena, data...)
	}
	return at
}

// Arena puts a function's result into the execution's arena.
func (n *Node) Arena(id engine.ID, data []byte) engine.Extent { return n.put(id, data) }

// At reads a place in an execution's arena.
func (n *Node) At(id engine.ID, at engine.Extent) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	arena := n.arenas[id]
	if at.Offset < 0 || at.Size < 0 || at.Offset+at.Size > int64(len(arena)) {
		return nil, fmt.Errorf("%d bytes at %d of an arena of %d: %w", at.Size, at.Offset, len(arena), engine.ErrNotFound)
	}
	return slices.Clone(arena[at.Offset : at.Offset+at.Size]), nil
}

func (v values) Save(ctx context.Context, id engine.ID, at engine.Extent) (string, error) {
	data, err := v.n.At(id, at)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	return digest, v.n.step(ctx, "save", func() error {
		if v.n.pool.saved[id] == nil {
			v.n.pool.saved[id] = map[string][]byte{}
		}
		v.n.pool.saved[id][digest] = data
		return nil
	})
}

func (v values) Load(ctx context.Context, id engine.ID, is core.Value) (engine.Extent, error) {
	var data []byte
	err := v.n.step(ctx, "load", func() error {
		var ok bool
		if data, ok = v.n.pool.saved[id][is.Digest]; !ok {
			return engine.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return engine.Extent{}, err
	}
	return v.n.put(id, data), nil
}

func (v values) Bytes(_ context.Context, id engine.ID, at engine.Extent) ([]byte, error) {
	return v.n.At(id, at)
}

func (v values) Fetch(ctx context.Context, id engine.ID, is core.Value) ([]byte, error) {
	var data []byte
	err := v.n.step(ctx, "fetch", func() error {
		var ok bool
		if data, ok = v.n.pool.saved[id][is.Digest]; !ok {
			return engine.ErrNotFound
		}
		return nil
	})
	return data, err
}

func (v values) Release(id engine.ID) {
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	delete(v.n.arenas, id)
}

func (v values) Forget(ctx context.Context, id engine.ID) error {
	return v.n.step(ctx, "forget", func() error {
		delete(v.n.pool.saved, id)
		return nil
	})
}

// Saved returns none: the nodes share what is saved.
func (v values) Saved(context.Context, time.Time) ([]engine.ID, error) { return nil, nil }

// Functions are functions in Go.
type Functions struct {
	// F is called for each call.
	F func(ctx context.Context, call engine.FunctionCall) (engine.Outcome, error)
	// Effects are the functions that are not pure.
	Effects []string
}

// Call implements engine.Functions.
func (f Functions) Call(ctx context.Context, call engine.FunctionCall) (engine.Outcome, error) {
	return f.F(ctx, call)
}

// Pure implements engine.Functions.
func (f Functions) Pure(_ string, _ int, function string) bool {
	return !slices.Contains(f.Effects, function)
}
