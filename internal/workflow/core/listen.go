package core

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Filter selects the events that a task listens for.
type Filter struct {
	// With are the attributes that an event must have. A text equals the attribute or,
	// as a regular expression, matches all of it.
	With map[string]any
}

// Match reports whether the event has the filter's attributes. The budget bounds the search for
// regular expressions.
func (f Filter) Match(e CloudEvent, b *dsl.Budget) bool {
	for name, want := range f.With {
		if !equal(e[name], want, b) {
			return false
		}
	}
	return true
}

func equal(got, want any, b *dsl.Budget) bool {
	pattern, ok := want.(string)
	if !ok {
		return reflect.DeepEqual(plain(got), plain(want))
	}
	text, ok := got.(string)
	if !ok {
		return false
	}
	return text == pattern || dsl.MatchWhole(b, pattern, text)
}

// plain converts numbers of all representations to a comparable one.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case json.Number:
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return string(v)
		}
		return f
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	}
	return v
}

// hearing holds the events that a listening task has received.
type hearing struct {
	filters []Filter
	events  []any    // the task's output
	met     []bool   // whether each filter was matched
	ids     []string // the identities of the counted events
}

func (n *node) listen() {
	l := n.task.Listen
	h := &hearing{met: make([]bool, len(l.Filters))}
	for _, f := range l.Filters {
		v, err := f.With.Eval(n.x.scope(n, n.input))
		if err != nil {
			n.fail(expressionError(err))
			return
		}
		with, _ := v.(map[string]any)
		h.filters = append(h.filters, Filter{With: with})
	}
	n.heard = h
	n.await(Listen{Path: n.path, Filters: h.filters, Since: n.began})
}

// expects reports whether the event counts for a listening task. An event on which an
// expression fails does not count.
func (n *node) expects(e CloudEvent) bool {
	return n.heard != nil && n.filterFor(e) >= 0
}

// filterFor returns the index of the first filter that the event matches, or -1. A listen to all
// filters considers only the filters without an event.
func (n *node) filterFor(e CloudEvent) int {
	if slices.Contains(n.heard.ids, identity(e)) {
		return -1
	}
	l := n.task.Listen
	for i, f := range n.heard.filters {
		if l.All && n.heard.met[i] || !f.Match(e, n.x.budget) {
			continue
		}
		if yes, err := l.Filters[i].Data.True(n.x.scope(n, e["data"])); err == nil && yes {
			return i
		}
	}
	if len(l.Filters) == 0 {
		return 0
	}
	return -1
}

// identity returns an event's deduplication key, since delivery is at least once.
func identity(e CloudEvent) string { return textOf(e["source"]) + "\n" + textOf(e["id"]) }

func (x *Execution) received(r *Received) {
	n := x.live[r.Path]
	if n == nil || !n.expects(r.Event) {
		return
	}
	l, h := n.task.Listen, n.heard
	if i := n.filterFor(r.Event); i < len(h.met) {
		h.met[i] = true
	}
	h.ids = append(h.ids, identity(r.Event))
	var heard any = map[string]any(r.Event)
	if !l.Envelope {
		heard = r.Event["data"]
	}
	h.events = append(h.events, heard)
	if !x.hold(n, heard) {
		return
	}
	enough, err := n.heardEnough(l)
	switch {
	case err != nil:
		x.emitAction(Stop{Path: n.path})
		n.fail(expressionError(err))
	case enough:
		x.emitAction(Stop{Path: n.path})
		n.complete(h.events, n.task.Then)
	}
}

func (n *node) heardEnough(l *dsl.Listen) (bool, error) {
	switch {
	case l.All:
		return !slices.Contains(n.heard.met, false), nil
	case l.Until == nil:
		return true, nil
	}
	return l.Until.True(n.x.scope(n, slices.Clone(n.heard.events)))
}
