package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// adoptOrphans takes over executions whose nodes have left.
func (e *Engine) adoptOrphans() {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := e.opts.Claims.Orphans(e.ctx, func(id ID) {
			e.spawn(func() { e.adopt(id) })
		})
		if e.ctx.Err() != nil {
			return
		}
		e.log.Warn("watch the claims on executions", "error", err)
		if !sleep(e.ctx, pause) {
			return
		}
	}
}

// tellPause is how long the log waits for more executions that are taken over.
const tellPause = 2 * time.Second

// tellTaken logs how many executions were taken over: a node that dies may leave thousands,
// which are worth a few lines.
func (e *Engine) tellTaken() {
	for sleep(e.ctx, tellPause) {
		if n := e.taken.Swap(0); n > 0 {
			e.log.Info("took executions over", "executions", n)
		}
	}
}

// adopt takes an execution over, unless somebody else does.
func (e *Engine) adopt(id ID) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		select {
		case e.adopting <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		err := e.tryAdopt(id)
		<-e.adopting
		switch {
		case err == nil, e.ctx.Err() != nil:
			return
		case errors.Is(err, ErrClaimed):
			return
		case !errors.Is(err, state.ErrConflict):
			e.log.Warn("take an execution over", "execution", id, "error", err)
		}
		if !sleep(e.ctx, pause) {
			return
		}
	}
}

// tryAdopt takes an execution over if it has been claimed or can be, and is
// recorded and not finished; else it sees to it that this node does not claim it.
func (e *Engine) tryAdopt(id ID) error {
	r := e.newRun(id, nil)
	here, err := e.admit(r, 0)
	if err != nil || !here {
		r.stop()
		return nil //nolint:nilerr // The engine is closed.
	}
	err = e.inherit(r)
	if err != nil || !r.inherited {
		r.abandon()
	}
	return err
}

func (e *Engine) inherit(r *run) error {
	if err := e.opts.Claims.Claim(e.ctx, r.id); err != nil {
		return err
	}
	records, err := e.opts.Log.Read(e.ctx, r.key)
	if err != nil {
		return err
	}
	if len(records) == 0 || finished(records) {
		return e.opts.Claims.Release(e.ctx, r.id)
	}
	r.seq = records[len(records)-1].Seq
	events, err := decode(records)
	if err == nil {
		err = e.prepare(e.ctx, r, events)
	}
	switch {
	case errors.Is(err, ErrNotFound), outboard.KindOf(err) == outboard.NotFound, errors.Is(err, errCorrupt):
		return e.bury(r, err)
	case err != nil:
		return err
	}
	return e.takeOver(r, events)
}

// bury ends an execution whose workflow is gone or whose log can't be read.
func (e *Engine) bury(r *run, cause error) error {
	r.conclude(core.Finished{Status: core.Faulted, Error: &dsl.Error{
		Type: dsl.ErrorConfiguration, Status: 410, Title: "the execution can't go on", Detail: cut(cause.Error()),
	}})
	if err := r.record(e.ctx, r.entries); err != nil {
		return err
	}
	return e.opts.Claims.Release(e.ctx, r.id)
}

// prepare finds the workflow of an execution that is in the log.
func (e *Engine) prepare(ctx context.Context, r *run, events []core.Event) error {
	s := events[0].Started
	if s == nil {
		return fmt.Errorf("the log of %s does not begin with its start: %w", r.id, errCorrupt)
	}
	w, _, err := e.opts.Workflows.Workflow(ctx, r.id.App(), s.Version, s.Workflow)
	if err != nil {
		return err
	}
	r.workflow, r.version, r.x = w, s.Version, core.New(string(r.id), w)
	return nil
}

// replayed makes an execution of its events, to look at.
func (e *Engine) replayed(ctx context.Context, id ID, events []core.Event) (*run, error) {
	r := e.newRun(id, nil)
	r.stop()
	if err := e.prepare(ctx, r, events); err != nil {
		return nil, err
	}
	for _, event := range events {
		if _, err := r.x.Apply(event); err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", id, err)
		}
	}
	return r, nil
}

// takeOver writes into the log who has the execution now, which shuts out
// whoever had it before, and goes on with it.
func (e *Engine) takeOver(r *run, events []core.Event) error {
	taken := core.Event{At: now(), By: e.by, Taken: &core.Taken{Node: e.opts.Node, Reason: reason(e, events)}}
	text, err := json.Marshal(taken)
	if err != nil {
		return err
	}
	seq, err := r.append(e.ctx, [][]byte{text})
	if err != nil {
		return err
	}
	r.resume(append(events, taken), seq)
	e.metrics.taken.Inc()
	e.taken.Add(1)
	e.log.Debug("took an execution over", "execution", r.id, "records", len(events))
	r.inherited = e.spawn(r.live)
	return nil
}

// reason says to people why this node has the execution now.
func reason(e *Engine, events []core.Event) string {
	last := ""
	for _, event := range events {
		switch {
		case event.Started != nil:
			last = event.Started.Node
		case event.Taken != nil:
			last = event.Taken.Node
		}
	}
	if last == e.opts.Node {
		return "the node was started again"
	}
	return "node " + last + " has left"
}

// sweep purges executions that ended longer ago than the retention.
func (e *Engine) sweep() {
	for {
		if !sleep(e.ctx, min(max(e.opts.Retention/8, time.Minute), time.Hour)) {
			return
		}
		if err := e.purgeOld(e.ctx, now()); err != nil && e.ctx.Err() == nil {
			e.log.Warn("purge old executions", "error", err)
		}
	}
}

func (e *Engine) purgeOld(ctx context.Context, at time.Time) error {
	heads, err := e.heads(ctx, "")
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(heads)) {
		if made, ok := nameAt(id.Name()); ok && at.Sub(made) < e.opts.Retention {
			continue
		}
		if err := e.purge(ctx, id, at); err != nil {
			return err
		}
	}
	return nil
}

// purge forgets an execution if it is old enough. Its values go first: without
// them the log still says that they are to go.
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
