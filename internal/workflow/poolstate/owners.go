package poolstate

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

// ErrOwned says that a present node runs the execution.
var ErrOwned = errors.New("another node runs the execution")

// Members knows which nodes are in the pool.
type Members interface {
	Nodes() []outboard.Node
	Changed() <-chan struct{}
}

// OwnersOptions configure Owners.
type OwnersOptions struct {
	Members Members
	Self    outboard.NodeID
	// Prefix is the prefix of the executions' keys, "TENANT/".
	Prefix string
	// Keys returns the keys of the executions' log that begin with a prefix.
	Keys func(ctx context.Context, prefix string) ([]string, error)
	// Owner returns the node that the records of an execution name last, in its start or in a
	// takeover; "" without records. over says that the execution has ended.
	Owner func(ctx context.Context, key string) (node outboard.NodeID, over bool, err error)
	// Logger logs when many executions have to be read. The default discards it.
	Logger *slog.Logger
}

// Owners knows which node runs which execution, and which executions have no owner.
//
// It writes nothing. Each execution's log names its owner: the node that recorded its start, or the
// node that recorded last that it took the execution over. These records are appended at an
// expected revision, so that of two nodes that want an execution one gets it, and its earlier owner
// can append no more. What a key of the pool's table would add by compare-and-swap exists already,
// in order with the steps, and costs nothing for an execution that is never taken over. A key for
// each execution would be two writes, which every node's watcher of the table receives: at 1,000
// executions a second and ten nodes 20,000 messages a second, which are of use only after a node's
// death. That cost is paid then instead: the log's keys are read, and the records of the executions
// that are not known to have ended.
//
// A node owns nothing any more when it is no member of the pool. An execution that this node owns,
// but has not claimed since NewOwners, was left by its previous process.
type Owners struct {
	opts OwnersOptions

	mu   sync.Mutex
	mine map[string]bool // claimed by this process
	over map[string]bool // have ended, which stays so
}

// NewOwners returns Owners that have claimed nothing.
func NewOwners(opts OwnersOptions) *Owners {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Owners{opts: opts, mine: map[string]bool{}, over: map[string]bool{}}
}

// Claim returns nil if this node may run an execution: the execution has no records, or its owner
// has left, or this node is the owner. The caller then records that it runs the execution, at the
// revision that it knows, and may come too late. Otherwise the error is ErrOwned.
func (o *Owners) Claim(ctx context.Context, key string) error {
	node, over, err := o.opts.Owner(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("claim execution %s: %w", key, err)
	case node != "" && node != o.opts.Self && !over && !o.left(node):
		o.Release(key) // it was lost, if it was this node's
		return fmt.Errorf("claim execution %s: %s: %w", key, node, ErrOwned)
	}
	o.add(key)
	return nil
}

// add records that this process runs an execution.
func (o *Owners) add(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mine[key] = true
}

// Release records that this process no longer runs an execution.
func (o *Owners) Release(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mine, key)
}

func (o *Owners) isMine(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mine[key]
}

// nodes returns the members by name, none while the members are not known.
func (o *Owners) nodes() []outboard.NodeID {
	var all []outboard.NodeID
	for _, n := range o.opts.Members.Nodes() {
		all = append(all, n.ID)
	}
	if !slices.Contains(all, o.opts.Self) {
		return nil // a node that does not see itself has no view of the others
	}
	return all
}

func (o *Owners) left(node outboard.NodeID) bool {
	nodes := o.nodes()
	return len(nodes) > 0 && !slices.Contains(nodes, node)
}

const (
	// turn is how long a node has to take an orphan over before the next node may.
	turn = 2 * time.Second
	// readers is how many executions are read at the same time.
	readers = 8
	// many is the number of executions whose reading is worth a line of the log.
	many = 200
)

// Orphans calls f with each execution without an owner, until ctx ends: now with the executions of
// this node's previous process, and with those of other nodes when they leave. Every node does so;
// the key of an orphan decides which node gets it first. f may be called more than once with a key,
// and may be called by several goroutines.
func (o *Owners) Orphans(ctx context.Context, f func(key string)) error {
	var known []outboard.NodeID
	var pending []string
	for round := 0; ; {
		changed := o.opts.Members.Changed()
		if nodes := o.nodes(); len(nodes) > 0 {
			if known == nil || anyLeft(known, nodes) {
				all, err := o.candidates(ctx)
				if err != nil {
					return err
				}
				pending, round = all, 0
			}
			known = nodes
			var err error
			if pending, err = o.offerAll(ctx, pending, nodes, round, f); err != nil {
				return err
			}
			round++
		}
		if err := wait(ctx, changed, len(pending) > 0); err != nil {
			return err
		}
	}
}

// wait returns after a change, or after a turn if an execution waits for its turn.
func wait(ctx context.Context, changed <-chan struct{}, pending bool) error {
	var next <-chan time.Time
	if pending {
		timer := time.NewTimer(turn)
		defer timer.Stop()
		next = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-next:
	}
	return nil
}

func anyLeft(before, now []outboard.NodeID) bool {
	return slices.ContainsFunc(before, func(n outboard.NodeID) bool { return !slices.Contains(now, n) })
}

// candidates returns the executions that may not have ended.
func (o *Owners) candidates(ctx context.Context) ([]string, error) {
	keys, err := o.opts.Keys(ctx, o.opts.Prefix)
	if err != nil {
		return nil, fmt.Errorf("look for executions without an owner: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	over := map[string]bool{}
	var all []string
	for _, key := range keys {
		if o.over[key] {
			over[key] = true // keys that the log dropped are dropped here, too
		} else if strings.HasPrefix(key, o.opts.Prefix) {
			all = append(all, key)
		}
	}
	o.over = over
	return all, nil
}

// offerAll is offer, with lines in the log for many executions.
func (o *Owners) offerAll(ctx context.Context, keys []string, nodes []outboard.NodeID, round int, f func(string)) ([]string, error) {
	if len(keys) < many {
		return o.offer(ctx, keys, nodes, round, f)
	}
	begin := time.Now()
	o.opts.Logger.Info("reading the logs of executions to find those without an owner", "executions", len(keys))
	later, err := o.offer(ctx, keys, nodes, round, f)
	o.opts.Logger.Info("the logs of executions are read", "executions", len(keys), "took", time.Since(begin).Round(time.Millisecond))
	return later, err
}

// offer calls f with the executions without an owner that this node may take over now, and returns
// the executions whose turn may come later.
func (o *Owners) offer(ctx context.Context, keys []string, nodes []outboard.NodeID, round int, f func(string)) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan string)
	var mu sync.Mutex
	var later []string
	var all sync.WaitGroup
	for range min(readers, len(keys)) {
		all.Go(func() {
			for key := range work {
				wait, err := o.offerOne(ctx, key, nodes, round, f)
				if err != nil {
					cancel(err)
				}
				if wait {
					mu.Lock()
					later = append(later, key)
					mu.Unlock()
				}
			}
		})
	}
	for _, key := range keys {
		if ctx.Err() != nil {
			break
		}
		work <- key
	}
	close(work)
	all.Wait()
	slices.Sort(later)
	return later, context.Cause(ctx)
}

// offerOne offers one execution, and reports whether it may have to be offered again later.
func (o *Owners) offerOne(ctx context.Context, key string, nodes []outboard.NodeID, round int, f func(string)) (bool, error) {
	node, over, err := o.opts.Owner(ctx, key)
	if err != nil {
		return false, fmt.Errorf("look whose execution %s is: %w", key, err)
	}
	switch {
	case over:
		o.mu.Lock()
		o.over[key] = true
		o.mu.Unlock()
		return false, nil
	case node == o.opts.Self && o.isMine(key):
		return false, nil
	case node == "" || node != o.opts.Self && slices.Contains(nodes, node):
		return false, nil
	case node != o.opts.Self && takeoverRank(nodes, o.opts.Self, key) > round:
		return true, nil
	}
	f(key)
	return false, nil
}

// takeoverRank returns the number of nodes that come before self in the order in which nodes take
// an execution over (rendezvous hashing): all nodes compute the same order, another for each
// execution.
func takeoverRank(nodes []outboard.NodeID, self outboard.NodeID, key string) int {
	weight := func(n outboard.NodeID) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(string(n) + "\x00" + key)) // a hash takes everything
		// FNV's last letters reach its high bits badly.
		v := h.Sum64()
		v ^= v >> 33
		v *= 0xff51afd7ed558ccd
		return v ^ v>>33
	}
	own, before := weight(self), 0
	for _, n := range nodes {
		if w := weight(n); w > own || w == own && n < self {
			before++
		}
	}
	return before
}
