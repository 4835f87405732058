package policy

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/yamlerror"
)

// Parse compiles a file. name stands for the file in errors: each is an [Error] with line and
// column, and several are joined. Expressions on requests are checked against the descriptors;
// nil provides none.
func Parse(name string, text []byte, d Descriptors) (*Set, error) {
	return ParseOptions(name, text, Options{Descriptors: d})
}

// Options are the optional inputs of ParseOptions.
type Options struct {
	// Descriptors provides the services' types; nil provides none.
	Descriptors Descriptors
	// Module returns the code of a WebAssembly module that the file names; nil provides none.
	Module func(name string) ([]byte, error)
	// Modules caches compiled modules between calls; nil disables the cache.
	Modules *Modules
	// Partial returns a set beside the errors of policies. Of those that can't be read, the ones that
	// reject calls for which they can't be evaluated reject all calls that they apply to; the others
	// are missing.
	Partial bool
}

// The greatest file, in bytes and in policies.
const (
	// maxFileBytes and maxPolicies bound a file.
	maxFileBytes = 8 << 20
	maxPolicies  = 1 << 12
)

// ParseOptions is Parse with options.
func ParseOptions(name string, text []byte, o Options) (*Set, error) {
	p := newParser(name, text, o)
	if len(text) > maxFileBytes {
		return nil, &Error{File: name, Line: 1, Column: 1, Text: fmt.Sprintf("%d bytes; a file of policies has %d at most", len(text), maxFileBytes)}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, p.syntax(err)
	}
	if document.Kind == 0 {
		return p.set.withState(noPolicy, time.Time{}), nil
	}
	err := p.file(document.Content[0])
	if line := yamlerror.SecondDocument(text); line > 0 {
		err = errors.Join(err, &Error{File: name, Line: line, Column: 1, Text: "a second document: its policies would be ignored: write one list"})
	}
	if err != nil && !o.Partial {
		return nil, err
	}
	return p.set.withState(noPolicy, time.Time{}), err
}

// parser compiles a file into a set.
type parser struct {
	compiler
	options Options
	set     *Set
	name    string // name of the current policy
}

func newParser(name string, text []byte, o Options) *parser {
	p := &parser{compiler: compiler{reader: reader{newSource(name, text)}}, options: o}
	p.set = &Set{name: name, source: text, inputs: newInputs(o.Descriptors)}
	p.inputs = &p.set.inputs
	p.currentEnvs = newEnvironments(p.inputs, false)
	p.responseEnvs = newEnvironments(p.inputs, true)
	return p
}

func (p *parser) file(n *yaml.Node) error {
	var list *yaml.Node
	if err := p.mapping(n, "a file of policies", members{"policies": capture(&list)}); err != nil || list == nil || list.Tag == "!!null" {
		return err
	}
	if list.Kind != yaml.SequenceNode {
		return p.src.errorf(list, "policies is a list: each begins with \"- name: ...\"")
	}
	if len(list.Content) > maxPolicies {
		return p.src.errorf(list, "%d policies; there may be %d", len(list.Content), maxPolicies)
	}
	var errs []error
	lines := map[string]int{}
	for _, item := range list.Content {
		errs = append(errs, p.policy(item, lines))
	}
	return errors.Join(errs...)
}

// policy parses one policy and adds it to the set.
func (p *parser) policy(n *yaml.Node, lines map[string]int) error {
	err := p.parsePolicy(n, lines)
	if err != nil && p.options.Partial {
		p.rejectInstead(n)
	}
	return err
}

func (p *parser) parsePolicy(n *yaml.Node, lines map[string]int) error {
	pol := &policy{line: n.Line}
	var name, when, failure, kind, value *yaml.Node
	m := members{
		"name": capture(&name), "when": capture(&when), "failure": capture(&failure),
		"services": p.globs(&pol.applies.services), "methods": p.globs(&pol.applies.methods), "tenants": p.globs(&pol.applies.tenants),
	}
	for k := range kinds() {
		m[k] = func(v *yaml.Node) error { return p.setKind(k, v, &kind, &value, pol) }
	}
	if err := p.mapping(n, "a policy", m); err != nil {
		return err
	}
	if err := p.parseName(n, name, pol, lines); err != nil {
		return err
	}
	if kind == nil {
		return p.src.errorf(n, "policy %s says not what it does: it needs one of %s", pol.name, join(kinds()))
	}
	return p.parseBody(pol, when, failure, value)
}

// rejectInstead adds a policy that can't be read as one that rejects all calls that it applies to, if
// it rejects calls for which it can't be evaluated. Members that can't be read restrict nothing.
func (p *parser) rejectInstead(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	pol := &policy{line: n.Line}
	var failure *yaml.Node
	patterns := map[string]*globs{"services": &pol.applies.services, "methods": &pol.applies.methods, "tenants": &pol.applies.tenants}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case key == "name":
			pol.name = value.Value
		case key == "failure":
			failure = value
		case patterns[key] != nil:
			if p.globs(patterns[key])(value) != nil {
				*patterns[key] = nil
			}
		case kinds()[key] != nil:
			pol.kind = key
			pol.deny = pol.deny || deniesByDefault(key)
		}
	}
	if failure != nil {
		_ = p.failure(failure, pol) // without it the default applies
	}
	if !pol.deny {
		return
	}
	p.name = pol.name
	pol.when, pol.rules = nil, &rejectRules{p.refusal(codes.Unavailable, "this node can't read it: see the node's log")}
	p.set.policies = append(p.set.policies, pol)
}

// deniesByDefault reports whether policies of a kind deny calls for which they can't be evaluated.
func deniesByDefault(kind string) bool { return kind == "access" || kind == "wasm" }

func (p *parser) failure(n *yaml.Node, pol *policy) error {
	return p.keyword(n, map[string]bool{"allow": false, "deny": true}, &pol.deny)
}

// rejectRules reject all calls.
type rejectRules struct{ err error }

type rejectStep struct{ *rejectRules }

func (r *rejectRules) bind(*policy, step, time.Time) step { return &rejectStep{r} }

func (s *rejectStep) apply(*Exchange) error { return s.err }

// setKind records the member that is the policy's kind. A policy has exactly one.
func (p *parser) setKind(kind string, v *yaml.Node, first, value **yaml.Node, pol *policy) error {
	if *first != nil {
		return p.src.errorf(v, "a policy does one thing, and this has %s already: make %s a policy of its own", pol.kind, kind)
	}
	*first, *value, pol.kind = v, v, kind
	return nil
}

func (p *parser) parseName(n, name *yaml.Node, pol *policy, lines map[string]int) error {
	if name == nil {
		return p.src.errorf(n, "a policy needs a name, as in: name: limit-guests")
	}
	if err := p.text(name, &pol.name); err != nil {
		return err
	}
	if first := lines[pol.name]; first != 0 {
		return p.src.errorf(name, "name %s is taken by the policy at line %d: names tell what belongs together when policies are changed", pol.name, first)
	}
	lines[pol.name] = n.Line
	return nil
}

func (p *parser) parseBody(pol *policy, when, failure, value *yaml.Node) (err error) {
	p.name, p.request, p.applies, p.selected = pol.name, false, &pol.applies, p.inputs.selected(&pol.applies)
	p.selections = map[int]selection{}
	pol.deny = deniesByDefault(pol.kind)
	if when != nil {
		if pol.when, err = p.compile(when, expectedType{boolType(), "when"}); err != nil {
			return err
		}
	}
	if failure != nil {
		if err := p.failure(failure, pol); err != nil {
			return err
		}
	}
	if pol.rules, err = kinds()[pol.kind](p, value); err != nil {
		return err
	}
	pol.request, pol.selections = p.request, p.selections
	p.set.policies = append(p.set.policies, pol)
	return nil
}

// kinds returns the parsers of the kinds of policies, by the member's name.
func kinds() map[string]func(*parser, *yaml.Node) (rules, error) {
	return map[string]func(*parser, *yaml.Node) (rules, error){
		"access": (*parser).access, "rate": (*parser).rate, "concurrency": (*parser).concurrency,
		"timeout": (*parser).timeout, "retry": (*parser).retry, "hedge": (*parser).hedge, "breaker": (*parser).breaker,
		"mirror": (*parser).mirror, "fault": (*parser).fault, "link": (*parser).link, "rewrite": (*parser).rewrite,
		"log": (*parser).log, "sample": (*parser).sample, "trace": (*parser).trace, "wasm": (*parser).wasm,
	}
}

// refusal returns the status of calls that a policy rejects.
func (p *parser) refusal(code codes.Code, format string, arguments ...any) error {
	return status.Errorf(code, "policy %s: %s", p.name, fmt.Sprintf(format, arguments...))
}
