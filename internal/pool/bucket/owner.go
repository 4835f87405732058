package bucket

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

const (
	queueLength = 1024
	// maxJobs bounds the jobs of one batch: the larger it is, the longer they wait.
	maxJobs = 1024
	// tombstoneTrust is how long an owner that reads no changes may rely on the tombstones of other
	// owners, which are deleted after an hour.
	tombstoneTrust = 30 * time.Minute
)

// job is one queued call: without operations it is a read.
type job struct {
	ops    []Op
	failed int
	err    error
	done   chan struct{}
	// gone means that the caller does not wait any more.
	gone atomic.Bool
}

// submit enqueues a transaction, and waits until it is committed and
// acknowledged. Without operations it waits until the view is current.
func (b *Bucket) submit(ctx context.Context, ops []Op) (failed int, err error) {
	j := &job{ops: ops, done: make(chan struct{})}
	select {
	case b.queue <- j:
	case <-b.done:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-j.done:
		return j.failed, j.err
	case <-b.done:
		return 0, ErrClosed
	case <-ctx.Done():
		j.gone.Store(true)
		return 0, ctx.Err()
	}
}

// run processes batches of queued jobs until ctx ends.
func (b *Bucket) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-b.queue:
			b.processJobs(ctx, b.collectJobs(j))
		}
	}
}

// collectJobs dequeues all jobs, after yielding once: callers that were answered just now
// often submit their next job at once.
func (b *Bucket) collectJobs(first *job) []*job {
	jobs := []*job{first}
	for yielded := false; len(jobs) < maxJobs; {
		select {
		case j := <-b.queue:
			jobs = append(jobs, j)
			continue
		default:
		}
		if yielded {
			break
		}
		yielded = true
		runtime.Gosched()
	}
	return jobs
}

// processJobs evaluates and commits the jobs, in as many commits as are needed. A commit is
// acknowledged when it is recorded, before its keys are written.
func (b *Bucket) processJobs(ctx context.Context, jobs []*job) {
	for len(jobs) > 0 {
		b.forget(wallClock())
		p, n := b.decide(jobs)
		err := b.commitPlan(ctx, p)
		if errors.Is(err, state.ErrConflict) {
			continue // Decide again: the view has changed.
		}
		for _, j := range jobs[:n] {
			if err != nil {
				j.err = err
			}
			close(j.done)
		}
		jobs = jobs[n:]
		b.spread(ctx)
	}
}

// spread writes the single keys of the last commit, even when the bucket is being closed.
func (b *Bucket) spread(ctx context.Context) {
	if b.unspread == nil {
		return
	}
	err := b.store.Spread(context.WithoutCancel(ctx), *b.unspread)
	if err == nil {
		b.unspread = nil
		return
	}
	b.opts.Logger.Debug("the bucket's last commit is read again", "bucket", b.opts.Name, "error", err)
	// The owner's next operation meets and returns its error.
	_ = b.sync(ctx)
}

// decide evaluates as many of the jobs as fit into one commit.
func (b *Bucket) decide(jobs []*job) (p *plan, n int) {
	p = newPlan(&b.view, wallClock())
	for n < len(jobs) {
		j := jobs[n]
		if n > 0 && p.size+sizeOfTxn(j.ops)+(len(p.changes)+len(j.ops))*state.ChangeOverhead > state.MaxCommit {
			break
		}
		n++
		j.failed, j.err = -1, nil
		switch {
		case j.gone.Load():
		case b.view.bytes+int64(p.size+sizeOfTxn(j.ops)) > b.opts.MaxBytes && grows(j.ops):
			j.err = outboard.Errorf(outboard.Exhausted, "put", "the bucket has %d bytes already", b.view.bytes)
		default:
			if grows(j.ops) {
				j.err = b.opts.Budget.Check(int64(p.size + sizeOfTxn(j.ops)))
			}
			if j.err == nil {
				j.failed = p.txn(j.ops)
			}
		}
	}
	return p, n
}

// commitPlan commits the plan, or returns ErrConflict with a view that has changed. Without
// changes it verifies that the plan was evaluated on the current view.
func (b *Bucket) commitPlan(ctx context.Context, p *plan) error {
	switch {
	case b.tombstonesExpired() || b.unspread != nil:
		return b.catchUp(ctx)
	case len(p.changes) == 0:
		return b.confirm(ctx)
	}
	b.number++
	c := state.Commit{Writer: b.writer, Number: b.number, After: b.view.last, Changes: p.changes}
	b.turns.wait(ctx)
	err := b.store.Commit(ctx, c)
	switch {
	case err == nil:
		b.apply(c)
		b.unspread = &c
		b.turns.won()
		return nil
	case errors.Is(err, state.ErrBehind):
		return b.sync(ctx)
	case errors.Is(err, state.ErrConflict):
		return b.catchUp(ctx)
	}
	return err
}

// catchUp reads the changes of other owners, after which the plan must be evaluated again.
func (b *Bucket) catchUp(ctx context.Context) error {
	b.turns.lost()
	if err := b.sync(ctx); err != nil {
		return err
	}
	return state.ErrConflict
}

func (b *Bucket) confirm(ctx context.Context) error {
	now := wallClock()
	current, err := b.store.Current(ctx, b.view.last)
	if err != nil {
		return err
	}
	if !current {
		return b.catchUp(ctx)
	}
	b.lastCurrent = now
	return nil
}

// apply updates the view with the owner's own commit.
func (b *Bucket) apply(c state.Commit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, change := range c.Changes {
		b.view.set(change.Key, Entry{change.Value, c.Revision(i), change.ExpiresMilli}, change.Deleted)
	}
	b.view.last = c.Last()
	b.lastCurrent = wallClock()
	b.account(b.view.bytes)
}

// forget deletes expired keys.
func (b *Bucket) forget(now time.Time) {
	if !b.view.due(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view.forget(now)
	b.account(b.view.bytes)
}

// sync reads the commits of other owners, or the whole bucket after a pause longer than
// tombstones are retained.
func (b *Bucket) sync(ctx context.Context) error {
	now, from := wallClock(), b.view.last
	if b.unspread != nil {
		from = b.unspread.After
	}
	if b.tombstonesExpired() {
		from = 0
	}
	var entries []state.Entry
	last, err := b.store.Since(ctx, from, func(e state.Entry) { entries = append(entries, e) })
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if from == 0 {
		b.view = view{keys: make(map[string]Entry, len(entries))}
	}
	for _, e := range entries {
		b.view.set(e.Key, Entry{e.Value, e.Revision, e.ExpiresMilli}, e.Deleted)
	}
	b.view.last, b.lastCurrent, b.unspread = last, now, nil
	b.account(b.view.bytes)
	return nil
}

// tombstonesExpired reports whether tombstones may have expired that the owner has not read.
func (b *Bucket) tombstonesExpired() bool { return wallClock().Sub(b.lastCurrent) > tombstoneTrust }

// wallClock advances while the machine is suspended.
func wallClock() time.Time { return time.Now().Round(0) }

func sizeOfTxn(ops []Op) int {
	size := 0
	for i := range ops {
		size += len(ops[i].Key) + len(ops[i].Value) + numberSize
	}
	return size
}

// numberSize bounds the size of the sum of an Add.
const numberSize = 20

// grows reports whether a transaction may need more space than it frees.
func grows(ops []Op) bool {
	for i := range ops {
		if k := ops[i].Kind; k == Put || k == Add || k == PutIfMissing || k == PutFor {
			return true
		}
	}
	return false
}
