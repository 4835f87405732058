package dsl

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var errorKeys = []string{"type", "status", "title", "detail", "instance"}

// definitions are the parts of a file that tasks refer to by name: use.errors, use.retries,
// use.timeouts and use.authentications.
type definitions struct {
	*expressionReader
	rules    Rules
	errors   map[string]*Template
	retries  map[string]*Retry
	timeouts map[string]*yaml.Node

	authentications map[string]*yaml.Node
}

func (r *definitions) raise(n *yaml.Node) *Raise {
	raise := &Raise{}
	f, ok := r.mapping(n, "raise", []string{"error"}, nil)
	if !ok || !f.has("error") {
		r.report(n, "raise must have error: {type: ..., status: ...} or a name in use.errors")
		return raise
	}
	e := f.keys["error"]
	if e.Kind != yaml.ScalarNode {
		raise.Error = r.errorOf(e)
		return raise
	}
	if raise.Error = r.errors[e.Value]; raise.Error == nil {
		r.report(e, "error %q is not in use.errors: define it there, or write {type: ..., status: ...}", e.Value)
	}
	return raise
}

func (r *definitions) errorOf(n *yaml.Node) *Template {
	f, ok := r.mapping(n, "an error", errorKeys, nil)
	if !ok {
		return nil
	}
	for _, key := range []string{"type", "status"} {
		if !f.has(key) {
			r.report(n, "an error must have %s", key)
		}
	}
	if s := f.keys["status"]; s != nil && s.Kind == yaml.ScalarNode && s.ShortTag() != "!!str" {
		r.integer(s, "status", 100, 599)
	}
	return r.template(n)
}

func (r *parser) try(n *yaml.Node, f fields) *Try {
	t := &Try{As: "error"}
	pointer := r.pointer
	r.pointer = pointer + "/try"
	t.Do = r.tasks(n, "try")
	r.pointer = pointer
	if !f.has("catch") {
		r.report(n, "try has no catch: it must say what happens to errors, beside try")
		return t
	}
	c, ok := r.mapping(f.keys["catch"], "catch", []string{"errors", "as", "when", "exceptWhen", "retry", "do"}, nil)
	if !ok {
		return t
	}
	t.As = r.variable(c.keys["as"], "catch.as", "error")
	defer r.declareLocal(t.As)()
	t.Errors = r.errorFilter(c.keys["errors"])
	t.When = r.expression(c.keys["when"], "catch.when")
	t.ExceptWhen = r.expression(c.keys["exceptWhen"], "catch.exceptWhen")
	if p := c.keys["retry"]; p != nil {
		t.Retry = r.retry(p, r.retries)
	}
	if do := c.keys["do"]; do != nil {
		r.pointer = pointer + "/catch/do"
		t.Catch = r.tasks(do, "catch.do")
	}
	return t
}

func (r *definitions) errorFilter(n *yaml.Node) map[string]any {
	if n == nil {
		return nil
	}
	f, ok := r.mapping(n, "catch.errors", []string{"with"}, nil)
	if !ok || !f.has("with") {
		return nil
	}
	keys := slices.Concat(errorKeys, []string{"details"})
	with, ok := r.mapping(f.keys["with"], "catch.errors.with", keys, nil)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for key, n := range with.keys {
		if n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "${") {
			r.report(n, "catch.errors.with.%s must be a value: expressions belong into catch.when", key)
			continue
		}
		if key == "status" {
			out[key] = r.integer(n, "catch.errors.with.status", 100, 599)
			continue
		}
		out[strings.TrimSuffix(key, "s")] = n.Value
		if key == "type" {
			out[key] = standardType(n.Value)
		}
	}
	return out
}

// standardType returns the identifier of a standard error for another spelling of it: the DSL's
// conformance tests use a spelling that differs from its reference.
func standardType(text string) string {
	if name, ok := strings.CutPrefix(text, "https://serverlessworkflow.io/dsl/errors/types/"); ok {
		return errorTypes + name
	}
	return text
}

// retry parses a policy or, if known is not nil, the name of one.
func (r *definitions) retry(n *yaml.Node, known map[string]*Retry) *Retry {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if known[n.Value] == nil {
			r.report(n, "retry %q is not in use.retries: define it there, or write {delay: {seconds: 1}}", n.Value)
		}
		return known[n.Value]
	}
	f, ok := r.mapping(n, "retry", []string{"when", "exceptWhen", "delay", "backoff", "limit", "jitter"}, nil)
	if !ok {
		return nil
	}
	p := &Retry{Backoff: Constant}
	// A named policy is evaluated where it is used, and the variable of the error may
	// have another name there.
	if known == nil {
		defer r.declareLocal("error")()
	}
	p.When = r.expression(f.keys["when"], "retry.when")
	p.ExceptWhen = r.expression(f.keys["exceptWhen"], "retry.exceptWhen")
	if d := f.keys["delay"]; d != nil {
		p.Delay = r.duration(d, "retry.delay")
	}
	if b := f.keys["backoff"]; b != nil {
		p.Backoff = r.backoff(b)
	}
	if l := f.keys["limit"]; l != nil {
		r.limit(l, p)
	}
	if j := f.keys["jitter"]; j != nil {
		r.jitter(j, p)
	}
	return p
}

func (r *definitions) backoff(n *yaml.Node) Backoff {
	kinds := []string{string(Constant), string(Linear), string(Exponential)}
	f, ok := r.mapping(n, "retry.backoff", kinds, nil)
	if !ok {
		return Constant
	}
	if len(f.keys) != 1 {
		r.report(n, "retry.backoff must have one of %s", list(kinds))
		return Constant
	}
	for way, settings := range f.keys {
		if settings.ShortTag() != "!!null" && len(settings.Content) > 0 || settings.Kind == yaml.ScalarNode && settings.ShortTag() != "!!null" {
			r.report(settings, "retry.backoff.%s has no settings: write {}", way)
		}
		return Backoff(way)
	}
	return Constant
}

func (r *definitions) limit(n *yaml.Node, p *Retry) {
	f, ok := r.mapping(n, "retry.limit", []string{"attempt", "duration"}, nil)
	if !ok {
		return
	}
	if d := f.keys["duration"]; d != nil {
		p.Limit = r.duration(d, "retry.limit.duration")
	}
	if a := f.keys["attempt"]; a != nil {
		g, ok := r.mapping(a, "retry.limit.attempt", []string{"count", "duration"}, nil)
		if !ok {
			return
		}
		if c := g.keys["count"]; c != nil {
			p.Attempts = r.integer(c, "retry.limit.attempt.count", 1, 1_000_000)
		}
		if d := g.keys["duration"]; d != nil {
			p.AttemptTimeout = r.duration(d, "retry.limit.attempt.duration")
		}
	}
}

func (r *definitions) jitter(n *yaml.Node, p *Retry) {
	f, ok := r.mapping(n, "retry.jitter", []string{"from", "to"}, nil)
	if !ok {
		return
	}
	if !f.has("from") || !f.has("to") {
		r.report(n, "retry.jitter must have from and to")
		return
	}
	p.JitterFrom = r.duration(f.keys["from"], "retry.jitter.from")
	p.JitterTo = r.duration(f.keys["to"], "retry.jitter.to")
	if p.JitterTo < p.JitterFrom {
		r.report(n, "retry.jitter: to must not be less than from")
	}
}

func itoa(i int) string { return strconv.Itoa(i) }

// escape encodes a name as a part of a JSON pointer.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
