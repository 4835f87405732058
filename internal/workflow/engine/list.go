package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
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
	// Brief leaves outputs out. Executions that were read before, and have not changed, are then
	// not read again, however large their outputs are.
	Brief bool
}

func (f *Filter) matches(x *Execution) bool {
	return (f.Workflow == "" || f.Workflow == x.Workflow) && (f.Status == "" || f.Status == x.Status)
}

// readers bounds the logs that are read at once.
const readers = 16

// List describes executions without their inputs and steps, the latest first. Names that Start has
// generated are in the order of their times, so only as many of these executions are read as are
// listed; executions whose names callers chose have to be read all. Executions whose summaries are
// cached, and that have not changed since, are not read again.
func (e *Engine) List(ctx context.Context, f Filter) ([]Execution, error) {
	heads, err := e.heads(ctx, f.App)
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	if f.Name != "" {
		maps.DeleteFunc(heads, func(id ID, _ uint64) bool { return id.Name() != f.Name })
	}
	l := listing{e: e, f: f, heads: heads}
	if err := l.fill(ctx); err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	slices.SortFunc(l.out, func(a, b Execution) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(string(a.ID), string(b.ID)))
	})
	if f.Limit > 0 {
		l.out = l.out[:min(len(l.out), f.Limit)]
	}
	return l.out, nil
}

// fill reads as many executions as are listed.
func (l *listing) fill(ctx context.Context) error {
	if l.f.Limit == 0 {
		return l.add(ctx, slices.Collect(maps.Keys(l.heads)))
	}
	chosen, made := byTime(l.heads)
	err := l.add(ctx, chosen)
	for most := len(l.out) + l.f.Limit; len(made) > 0 && len(l.out) < most && err == nil; {
		n := min(readers, len(made))
		err = l.add(ctx, made[:n])
		made = made[n:]
	}
	return err
}

// byTime separates names that callers chose from names that Start generated, the latest first.
func byTime(heads map[ID]uint64) (chosen, made []ID) {
	for id := range heads {
		if _, ok := nameAt(id.Name()); ok {
			made = append(made, id)
		} else {
			chosen = append(chosen, id)
		}
	}
	slices.Sort(chosen)
	slices.SortFunc(made, func(a, b ID) int { return strings.Compare(b.Name(), a.Name()) })
	return chosen, made
}

// listing is the state of one List.
type listing struct {
	e     *Engine
	f     Filter
	heads map[ID]uint64 // of all executions
	out   []Execution
}

// add describes executions, and leaves out the ones that the filter does not match.
func (l *listing) add(ctx context.Context, ids []ID) error {
	all := make(map[ID]*Execution, len(ids))
	missing := l.addCached(ids, all)
	if l.scanPays(len(missing)) {
		if err := l.scan(ctx, missing); err != nil {
			return err
		}
		missing = l.addCached(missing, all)
	}
	if err := l.read(ctx, missing, all); err != nil {
		return err
	}
	for _, id := range ids {
		if x := all[id]; x != nil && l.f.matches(x) {
			l.out = append(l.out, *x)
		}
	}
	return nil
}

// addCached adds the executions whose summaries are cached, and returns the others.
func (l *listing) addCached(ids []ID, all map[ID]*Execution) (missing []ID) {
	for _, id := range ids {
		if x := l.e.summaries.get(id, l.heads[id], l.f.Brief); x != nil {
			all[id] = x
		} else {
			missing = append(missing, id)
		}
	}
	return missing
}

// To read one execution takes two requests, to scan the log one for a thousand appends.
const (
	scanFrom  = 256 // executions that are missing
	scanWorth = 50  // appends that may be scanned for each of them
)

// scanPays reports whether it is faster to scan the log than to read so many executions.
func (l *listing) scanPays(missing int) bool {
	if missing < scanFrom {
		return false
	}
	appends := uint64(0)
	for _, n := range l.heads {
		appends += n
	}
	return appends/scanWorth <= uint64(missing) //nolint:gosec // It is not negative.
}

// scan caches summaries of executions from one pass over the log. An execution of which the pass
// has not seen all records is not cached.
func (l *listing) scan(ctx context.Context, ids []ID) error {
	type part struct {
		events  []core.Event
		appends uint64
		broken  bool
	}
	parts := make(map[ID]*part, len(ids))
	for _, id := range ids {
		parts[id] = &part{}
	}
	err := l.e.opts.Log.Scan(ctx, l.e.prefix(l.f.App), func(records []state.Record) error {
		p := parts[ID(strings.TrimPrefix(records[0].Key, l.e.opts.Tenant+"/"))]
		if p == nil {
			return nil
		}
		events, err := decode(records)
		p.broken = p.broken || err != nil
		p.events = append(p.events, slices.DeleteFunc(events, func(event core.Event) bool {
			return event.Started == nil && event.TakenOver == nil && event.Finished == nil
		})...)
		p.appends++
		return nil
	})
	if err != nil {
		return err
	}
	for id, p := range parts {
		if p.appends >= l.heads[id] && !p.broken && len(p.events) > 0 && p.events[0].Started != nil {
			l.heads[id] = p.appends
			l.e.cacheSummary(id, p.appends, p.events)
		}
	}
	return nil
}

// read reads executions one by one, some at once.
func (l *listing) read(ctx context.Context, ids []ID, all map[ID]*Execution) error {
	found := make([]*Execution, len(ids))
	errs := make([]error, len(ids))
	free := make(chan struct{}, readers)
	var reading sync.WaitGroup
	for i, id := range ids {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			events, err := l.e.events(ctx, id)
			if errs[i] = err; err == nil {
				found[i] = l.e.cacheSummary(id, l.heads[id], events)
			}
		})
	}
	reading.Wait()
	for i, err := range errs {
		if err != nil && outboard.KindOf(err) != outboard.NotFound { // else it has been purged since
			return err
		}
		all[ids[i]] = found[i]
	}
	return nil
}

// history reads the logs of the tenant's executions.
type history struct {
	log       Log
	tenant    string
	summaries *summaryCache
}

// cacheSummary describes an execution and caches the description.
func (h *history) cacheSummary(id ID, head uint64, events []core.Event) *Execution {
	x := summaryOf(id, events)
	x.Input, x.InputValue = nil, nil
	h.summaries.put(&x, head)
	return &x
}

// prefix returns the prefix of the keys of one app's executions, or of all.
func (h *history) prefix(app string) string {
	if app == "" {
		return h.tenant + "/"
	}
	return h.tenant + "/" + app + "/"
}

// heads returns the tenant's executions, of one app or of all, each with the number of its appends.
func (h *history) heads(ctx context.Context, app string) (map[ID]uint64, error) {
	keys, err := h.log.Heads(ctx, h.prefix(app))
	if err != nil {
		return nil, err
	}
	heads := make(map[ID]uint64, len(keys))
	for key, head := range keys {
		if id, ok := strings.CutPrefix(key, h.tenant+"/"); ok {
			heads[ID(id)] = head
		}
	}
	return heads, nil
}
