package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// takeover continues executions whose nodes have left.
type takeover struct {
	e *Engine
	// slots bounds how many executions are replayed at once: a node that dies may leave thousands.
	slots chan struct{}
	count atomic.Int64 // since logTakeovers logged
}

// adoptOrphans takes over executions whose nodes have left.
func (t *takeover) adoptOrphans() {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		err := t.e.opts.Claims.Orphans(t.e.ctx, func(id ID) {
			t.e.spawn(func() { t.takeOver(id) })
		})
		if t.e.ctx.Err() != nil {
			return
		}
		t.e.log.Warn("watch the claims on executions", "error", err)
		if !sleep(t.e.ctx, pause) {
			return
		}
	}
}

// logInterval is the time between two lines of the log about executions that were taken over.
const logInterval = 2 * time.Second

// logTakeovers logs how many executions were taken over: a node that dies may leave thousands,
// which are worth a few lines.
func (t *takeover) logTakeovers() {
	for sleep(t.e.ctx, logInterval) {
		if n := t.count.Swap(0); n > 0 {
			t.e.log.Info("took executions over", "executions", n)
		}
	}
}

// takeOver takes an execution over, unless another node does.
func (t *takeover) takeOver(id ID) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		select {
		case t.slots <- struct{}{}:
		case <-t.e.ctx.Done():
			return
		}
		err := t.tryTakeOver(id)
		<-t.slots
		switch {
		case err == nil, t.e.ctx.Err() != nil:
			return
		case errors.Is(err, ErrClaimed):
			return
		case !errors.Is(err, state.ErrConflict):
			t.e.log.Warn("take an execution over", "execution", id, "error", err)
		}
		if !sleep(t.e.ctx, pause) {
			return
		}
	}
}

// tryTakeOver takes over an execution that this node can claim, and whose log has a start and no
// end. Otherwise it makes sure that this node holds no claim.
func (t *takeover) tryTakeOver(id ID) error {
	r := t.e.newRun(id, nil)
	here, err := t.e.admit(r, 0)
	if err != nil || !here {
		r.stop()
		return nil //nolint:nilerr // The engine is closed.
	}
	err = t.claimAndReplay(r)
	if err != nil || !r.resumed {
		r.detach()
	}
	return err
}

func (t *takeover) claimAndReplay(r *executor) error {
	if err := t.e.opts.Claims.Claim(t.e.ctx, r.id); err != nil {
		return err
	}
	records, err := t.e.opts.Log.Read(t.e.ctx, r.recorder.writer.key)
	if err != nil {
		return err
	}
	if len(records) == 0 || finished(records) {
		return t.e.opts.Claims.Release(t.e.ctx, r.id)
	}
	r.recorder.writer.seq = records[len(records)-1].Seq
	events, err := decode(records)
	if err == nil {
		err = t.e.loadWorkflow(t.e.ctx, r, events)
	}
	switch {
	case errors.Is(err, ErrNotFound), outboard.KindOf(err) == outboard.NotFound, errors.Is(err, errCorrupt):
		return t.failUnreadable(r, err)
	case err != nil:
		return err
	}
	return t.appendTakeover(r, events)
}

// failUnreadable ends an execution whose workflow is gone or whose log can't be read.
func (t *takeover) failUnreadable(r *executor, cause error) error {
	r.conclude(core.Finished{Status: core.Faulted, Error: &dsl.Error{
		Type: dsl.ErrorConfiguration, Status: 410, Title: "the execution can't go on", Detail: truncate(cause.Error()),
	}})
	if err := r.recorder.record(t.e.ctx, r.recorder.entries); err != nil {
		return err
	}
	return t.e.opts.Claims.Release(t.e.ctx, r.id)
}

// loadWorkflow loads the workflow with which an execution was started.
func (e *Engine) loadWorkflow(ctx context.Context, r *executor, events []core.Event) error {
	s := events[0].Started
	if s == nil {
		return fmt.Errorf("the log of %s does not begin with its start: %w", r.id, errCorrupt)
	}
	w, _, err := e.opts.Workflows.Workflow(ctx, r.id.App(), s.Version, s.Workflow)
	if err != nil {
		return err
	}
	r.workflow, r.version, r.depth, r.x = w, s.Version, s.Depth, core.New(string(r.id), w)
	return nil
}

// replay rebuilds an execution from its events, for inspection.
func (e *Engine) replay(ctx context.Context, id ID, events []core.Event) (*executor, error) {
	r := e.newRun(id, nil)
	r.stop()
	if err := e.loadWorkflow(ctx, r, events); err != nil {
		return nil, err
	}
	for _, event := range events {
		if _, err := r.x.Apply(event); err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", id, err)
		}
	}
	return r, nil
}

// appendTakeover records the new owner in the log, which fences off the previous one, and resumes
// the execution.
func (t *takeover) appendTakeover(r *executor, events []core.Event) error {
	taken := core.Event{At: now(), By: t.e.writer, TakenOver: &core.TakenOver{Node: t.e.opts.Node, Reason: takeoverReason(t.e, events)}}
	text, err := json.Marshal(taken)
	if err != nil {
		return err
	}
	seq, err := r.recorder.writer.append(t.e.ctx, [][]byte{text})
	if err != nil {
		return err
	}
	r.resume(append(events, taken), seq)
	t.e.cancelChildren(r)
	t.e.metrics.taken.Inc()
	t.count.Add(1)
	t.e.log.Debug("took an execution over", "execution", r.id, "records", len(events))
	r.resumed = t.e.spawn(r.loop)
	return nil
}

// takeoverReason returns the reason why this node owns the execution now.
func takeoverReason(e *Engine, events []core.Event) string {
	last := ""
	for _, event := range events {
		switch {
		case event.Started != nil:
			last = event.Started.Node
		case event.TakenOver != nil:
			last = event.TakenOver.Node
		}
	}
	if last == e.opts.Node {
		return "the node was started again"
	}
	return "node " + last + " has left"
}

// purgeLoop purges executions that ended longer ago than the retention.
func (e *Engine) purgeLoop() {
	for {
		if !sleep(e.ctx, min(max(e.opts.Retention/8, time.Minute), time.Hour)) {
			return
		}
		if err := e.purgeOld(e.ctx, now()); err != nil && e.ctx.Err() == nil {
			e.log.Warn("purge old executions", "error", err)
		}
	}
}

// forgetAfter is how long a value may be saved before its execution is recorded.
const forgetAfter = time.Hour

// purgeOld purges executions that ended longer ago than the retention. Values that this node has
// saved for executions that another node has purged are removed, too.
func (e *Engine) purgeOld(ctx context.Context, at time.Time) error {
	saved, err := e.opts.Values.Saved(ctx, at.Add(-forgetAfter))
	if err != nil {
		return err
	}
	heads, err := e.heads(ctx, "") // after Saved, so that it has all executions of which that knows
	if err != nil {
		return err
	}
	for _, id := range saved {
		if heads[id] > 0 || e.running(id) != nil {
			continue
		}
		if err := e.opts.Values.Forget(ctx, id); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(heads)) {
		// A name that a user chose may look like a generated one of the future.
		if made, ok := nameAt(id.Name()); ok && at.Sub(made) < e.opts.Retention && !made.After(at) {
			continue
		}
		if err := e.purge(ctx, id, at); err != nil {
			return err
		}
	}
	return nil
}

// purge deletes an execution if it is old enough. Its values are deleted first: until the log is
// deleted, too, it shows that the execution is to be purged.
func (e *Engine) purge(ctx context.Context, id ID, at time.Time) error {
	records, err := e.opts.Log.Read(ctx, e.key(id))
	if err != nil || !finished(records) {
		return err
	}
	events, err := decode(records)
	if err != nil {
		return err
	}
	if at.Sub(events[len(events)-1].At) < e.opts.Retention {
		return nil
	}
	if err := e.opts.Values.Forget(ctx, id); err != nil {
		return err
	}
	return e.opts.Log.Purge(ctx, e.key(id))
}
