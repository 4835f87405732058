package dsl

import (
	"go.yaml.in/yaml/v3"
)

var (
	refusedFilter = map[string]string{"correlate": "say in with which attributes an event must have; expressions may stand there"}
	refusedListen = map[string]string{"foreach": "use for on what came"}
)

func (r *parser) emit(n *yaml.Node) *Emit {
	e := &Emit{}
	f, ok := r.mapping(n, "emit", []string{"event"}, nil)
	if !ok || !f.has("event") {
		r.report(n, "emit must have event: {with: {source: ..., type: ..., data: ...}}")
		return e
	}
	event, ok := r.mapping(f.keys["event"], "emit.event", []string{"with"}, nil)
	if !ok || !event.has("with") || event.keys["with"].Kind != yaml.MappingNode {
		r.report(f.keys["event"], "emit.event must have with: {source: ..., type: ..., data: ...}")
		return e
	}
	with := event.keys["with"]
	for _, key := range []string{"source", "type"} {
		if !hasKey(with, key) {
			r.report(with, "emit.event.with has no %s: every event has one", key)
		}
	}
	e.With = r.template(with)
	return e
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func (r *parser) listen(n *yaml.Node) *Listen {
	l := &Listen{}
	f, ok := r.mapping(n, "listen", []string{"to", "read"}, refusedListen)
	if !ok {
		return l
	}
	if read := f.keys["read"]; read != nil {
		l.Envelope = read.Value == "envelope"
		if read.Value != "data" && read.Value != "envelope" {
			r.report(read, "listen.read %s is not supported: data and envelope are", read.Value)
		}
	}
	if !f.has("to") {
		r.report(n, "listen has no to: it must have one of one, any and all")
		return l
	}
	r.strategy(l, f.keys["to"])
	return l
}

func (r *parser) strategy(l *Listen, n *yaml.Node) {
	f, ok := r.mapping(n, "listen.to", []string{"one", "any", "all", "until"}, nil)
	if !ok {
		return
	}
	strategies := 0
	for _, key := range []string{"one", "any", "all"} {
		if f.has(key) {
			strategies++
		}
	}
	if strategies != 1 {
		r.report(n, "listen.to must have one of one, any and all")
		return
	}
	switch {
	case f.has("one"):
		l.Filters = []Filter{r.filter(f.keys["one"])}
	case f.has("any"):
		l.Filters = r.filters(f.keys["any"], "listen.to.any")
	default:
		l.All = true
		if l.Filters = r.filters(f.keys["all"], "listen.to.all"); len(l.Filters) == 0 {
			r.report(n, "listen.to.all has no filters")
		}
	}
	r.untilCondition(l, f)
}

func (r *parser) untilCondition(l *Listen, f fields) {
	n := f.keys["until"]
	switch {
	case n == nil:
	case !f.has("any"):
		r.report(n, "listen.to.until goes with any")
	case n.Kind == yaml.MappingNode:
		r.report(n, "listen.to.until as a strategy is not supported: write an expression on the events so far")
	case n.ShortTag() == "!!bool":
		r.report(n, "listen.to.until: %s is not supported: write an expression on the events so far", n.Value)
	default:
		l.Until = r.expression(n, "listen.to.until")
	}
}

func (r *parser) filters(n *yaml.Node, subject string) []Filter {
	if n.Kind != yaml.SequenceNode {
		r.report(n, "%s must be a list of filters: \"- with: {type: ...}\"", subject)
		return nil
	}
	out := make([]Filter, len(n.Content))
	for i, item := range n.Content {
		out[i] = r.filter(item)
	}
	return out
}

func (r *parser) filter(n *yaml.Node) Filter {
	f, ok := r.mapping(n, "a filter", []string{"with"}, refusedFilter)
	if !ok {
		return Filter{}
	}
	with := f.keys["with"]
	if with == nil || with.Kind != yaml.MappingNode || len(with.Content) == 0 {
		r.report(n, "a filter must have with: {type: ...}")
		return Filter{}
	}
	out := Filter{}
	rest := &yaml.Node{Kind: yaml.MappingNode, Line: with.Line, Column: with.Column}
	for i := 0; i < len(with.Content); i += 2 {
		key, v := with.Content[i], with.Content[i+1]
		if _, ok := embraced(v.Value); key.Value == "data" && ok {
			out.Data = r.expression(v, "data")
			continue
		}
		rest.Content = append(rest.Content, key, v)
	}
	out.With = r.template(rest)
	return out
}
