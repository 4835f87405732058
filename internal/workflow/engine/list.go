package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
)

// Filter says which executions to list.
type Filter struct {
	// App, Workflow and Name, the part of the ID behind the app, are "" for all.
	App, Workflow, Name string
	// Status is "" for all.
	Status core.Status
	// Limit bounds how many are listed, the latest first, 0 for all.
	Limit int
}

func (f *Filter) takes(x *Execution) bool {
	return (f.Workflow == "" || f.Workflow == x.Workflow) && (f.Status == "" || f.Status == x.Status)
}

// readers is how many logs are read at once.
const readers = 16

// List describes executions without their inputs and steps, the latest first.
// Names that Start has made are in the order of their times, so of those only as
// many are read as are listed; those that callers chose have to be read all.
func (e *Engine) List(ctx context.Context, f Filter) ([]Execution, error) {
	ids, err := e.ids(ctx, f.App)
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	if f.Name != "" {
		ids = slices.DeleteFunc(ids, func(id ID) bool { return id.Name() != f.Name })
	}
	chosen, made := byTime(ids)
	out, err := e.summaries(ctx, chosen, f)
	most := len(ids)
	if f.Limit > 0 {
		most = len(out) + f.Limit
	} else {
		f.Limit = len(ids)
	}
	for len(made) > 0 && len(out) < most && err == nil {
		n := min(readers, len(made))
		var more []Execution
		more, err = e.summaries(ctx, made[:n], f)
		out, made = append(out, more...), made[n:]
	}
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	slices.SortFunc(out, func(a, b Execution) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(string(a.ID), string(b.ID)))
	})
	return out[:min(len(out), f.Limit)], nil
}

// byTime parts names that callers chose from those that Start made, the latest first.
func byTime(ids []ID) (chosen, made []ID) {
	for _, id := range ids {
		if _, ok := nameAt(id.Name()); ok {
			made = append(made, id)
		} else {
			chosen = append(chosen, id)
		}
	}
	slices.SortFunc(made, func(a, b ID) int { return strings.Compare(b.Name(), a.Name()) })
	return chosen, made
}

// summaries reads executions, some at once, and leaves out what is not asked for.
func (e *Engine) summaries(ctx context.Context, ids []ID, f Filter) ([]Execution, error) {
	all := make([]*Execution, len(ids))
	errs := make([]error, len(ids))
	free := make(chan struct{}, readers)
	var reading sync.WaitGroup
	for i, id := range ids {
		free <- struct{}{}
		reading.Go(func() {
			all[i], errs[i] = e.summarized(ctx, id)
			<-free
		})
	}
	reading.Wait()
	var out []Execution
	for i, x := range all {
		switch err := errs[i]; {
		case outboard.KindOf(err) == outboard.NotFound: // It has been purged since.
		case err != nil:
			return nil, err
		case f.takes(x):
			out = append(out, *x)
		}
	}
	return out, nil
}

// summarized describes an execution, from memory if it has ended.
func (e *Engine) summarized(ctx context.Context, id ID) (*Execution, error) {
	if x := e.ended.get(id); x != nil {
		return x, nil
	}
	events, err := e.events(ctx, id)
	if err != nil {
		return nil, err
	}
	x := e.summary(id, events)
	x.Input, x.InputValue = nil, nil
	if x.Status.Over() {
		e.ended.put(&x)
	}
	return &x, nil
}

// ids are the tenant's executions, of one app or of all.
func (e *Engine) ids(ctx context.Context, app string) ([]ID, error) {
	prefix := e.opts.Tenant + "/"
	if app != "" {
		prefix += app + "/"
	}
	keys, err := e.opts.Log.Keys(ctx, prefix)
	if err != nil {
		return nil, err
	}
	ids := make([]ID, 0, len(keys))
	for _, key := range keys {
		if id, ok := strings.CutPrefix(key, e.opts.Tenant+"/"); ok {
			ids = append(ids, ID(id))
		}
	}
	slices.Sort(ids)
	return ids, nil
}

const (
	// maxEnded bounds how many executions that have ended are remembered, and
	// maxEndedOutput how large an output one of them may have.
	maxEnded       = 10_000
	maxEndedOutput = 1 << 10
)

// endings remembers executions that have ended, which never change, for the
// retention's time.
// All methods may be called by several goroutines.
type endings struct {
	keep time.Duration

	mu    sync.Mutex
	by    map[ID]*Execution
	order []ID
}

func newEndings(keep time.Duration) *endings { return &endings{keep: keep, by: map[ID]*Execution{}} }

func (m *endings) get(id ID) *Execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.by[id]
	if x == nil || time.Since(x.Ended) > m.keep {
		return nil
	}
	return x
}

func (m *endings) put(x *Execution) {
	if len(x.Output) > maxEndedOutput {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[x.ID] == nil {
		m.order = append(m.order, x.ID)
	}
	m.by[x.ID] = x
	for len(m.order) > maxEnded {
		delete(m.by, m.order[0])
		m.order = m.order[1:]
	}
}
