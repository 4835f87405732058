package policy

import (
	"math/bits"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"

	"github.com/outboard-run/outboard/fabric/call"
)

// accessRules decide by the first rule that matches a call. Each dimension of the rules is a
// table of bit sets: the matching rules are the intersection over all dimensions.
type accessRules struct {
	dimensions [dimensions]dimension
	words      int // length of each bit set, in words of 64 rules
	list       []accessRule
	allow      bool // the decision on calls that match no rule
	err        error
}

type accessRule struct {
	allow bool
	when  *expression
}

type accessStep struct{ *accessRules }

func (r *accessRules) bind(*policy, step, time.Time) step { return &accessStep{r} }

// A dimension is an attribute of calls that rules match, such as the tenant. used reports whether
// any rule has a pattern for it.
type dimension struct {
	used  bool
	words int
	all   []uint64            // rules that accept any value
	exact map[string][]uint64 // rules that name the value, and the rules in all
	globs []globRule
}

type globRule struct {
	glob glob
	rule int
}

func newDimension(rules int) dimension {
	words := (rules + 63) / 64
	return dimension{words: words, all: make([]uint64, words), exact: map[string][]uint64{}}
}

// add records a rule's patterns for the dimension. Without patterns the rule accepts any value.
func (d *dimension) add(rule int, patterns globs) {
	if len(patterns) == 0 {
		d.all[rule/64] |= 1 << (rule % 64)
		for _, set := range d.exact {
			set[rule/64] |= 1 << (rule % 64)
		}
		return
	}
	d.used = true
	for _, g := range patterns {
		name, ok := g.exact()
		if !ok {
			d.globs = append(d.globs, globRule{g, rule})
			continue
		}
		if d.exact[name] == nil {
			d.exact[name] = append([]uint64(nil), d.all...)
		}
		d.exact[name][rule/64] |= 1 << (rule % 64)
	}
}

// of returns the rules that name s or accept any value; matchWord adds the rules with globs.
func (d *dimension) of(s string) []uint64 {
	if set := d.exact[s]; set != nil {
		return set
	}
	return d.all
}

// matchWord returns word w of the set of rules that match s: set, from of, and the rules with
// globs.
func (d *dimension) matchWord(set []uint64, s string, w int) uint64 {
	word := set[w]
	for i := range d.globs {
		if g := &d.globs[i]; g.rule/64 == w && g.glob.match(s) {
			word |= 1 << (g.rule % 64)
		}
	}
	return word
}

func (s *accessStep) apply(x *Exchange) error {
	allow, err := s.decide(x)
	if err != nil {
		return &evaluationError{err}
	}
	if !allow {
		return s.err
	}
	return nil
}

// decide reports whether the rules allow the call. It reads an attribute only if a rule has a
// pattern for it.
func (r *accessRules) decide(x *Exchange) (bool, error) {
	var names [dimensions]string
	var sets [dimensions][]uint64
	for i := range r.dimensions {
		d := &r.dimensions[i]
		if sets[i] = d.all; d.used {
			names[i] = dimensionOf(i, x.Head)
			sets[i] = d.of(names[i])
		}
	}
	for w := range r.words {
		matching := ^uint64(0)
		for i := range r.dimensions {
			matching &= r.dimensions[i].matchWord(sets[i], names[i], w)
		}
		if yes, allow, err := r.first(x, w, matching); yes || err != nil {
			return allow, err
		}
	}
	return r.allow, nil
}

// first returns the decision of the first of the matching rules whose condition holds; yes reports
// whether there is one.
func (r *accessRules) first(x *Exchange, w int, matching uint64) (yes, allow bool, err error) {
	for ; matching != 0; matching &= matching - 1 {
		rule := &r.list[w*64+bits.TrailingZeros64(matching)]
		if rule.when == nil {
			return true, rule.allow, nil
		}
		if yes, err := rule.when.bool(x); yes || err != nil {
			return yes, rule.allow && err == nil, err
		}
	}
	return false, false, nil
}

const dimensions = 4

func dimensionNames() [dimensions]string {
	return [dimensions]string{"tenants", "peers", "services", "methods"}
}

func dimensionOf(i int, h *call.Head) string {
	switch i {
	case 0:
		return h.Tenant
	case 1:
		return h.Peer
	case 2:
		return h.Service()
	}
	return h.Name()
}

func (p *parser) access(n *yaml.Node) (rules, error) {
	r := &accessRules{}
	code, message := codes.PermissionDenied, "this caller may not call this"
	var list *yaml.Node
	m := members{
		"default": func(n *yaml.Node) error { return p.keyword(n, map[string]bool{"allow": true, "deny": false}, &r.allow) },
		"code":    p.code(&code), "message": func(n *yaml.Node) error { return p.text(n, &message) }, "rules": capture(&list),
	}
	if err := p.mapping(n, "access", m); err != nil {
		return nil, err
	}
	if err := p.require(n, list != nil, "rules", "access: {default: deny, rules: [{allow: {tenants: [gold]}}]}"); err != nil {
		return nil, err
	}
	if list.Kind != yaml.SequenceNode {
		return nil, p.src.errorf(list, "rules is a list, as in: [{allow: {tenants: [gold]}}]")
	}
	r.err = p.refusal(code, "%s", message)
	return r, (&accessParser{&p.compiler, r}).list(list)
}

// accessParser parses the rules of one access policy.
type accessParser struct {
	*compiler
	rules *accessRules
}

func (p *accessParser) list(list *yaml.Node) error {
	for i := range p.rules.dimensions {
		p.rules.dimensions[i] = newDimension(len(list.Content))
	}
	p.rules.words = (len(list.Content) + 63) / 64
	for i, item := range list.Content {
		if err := p.rule(i, item); err != nil {
			return err
		}
	}
	return nil
}

func (p *accessParser) rule(i int, item *yaml.Node) error {
	rule, said := accessRule{}, 0
	say := func(allow bool) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			said++
			rule.allow = allow
			return p.body(&rule, i, n)
		}
	}
	if err := p.mapping(item, "a rule", members{"allow": say(true), "deny": say(false)}); err != nil {
		return err
	}
	if said != 1 {
		return p.src.errorf(item, "a rule says either allow or deny, as in: - allow: {tenants: [gold]}")
	}
	p.rules.list = append(p.rules.list, rule)
	return nil
}

func (p *accessParser) body(rule *accessRule, i int, n *yaml.Node) error {
	var patterns [dimensions]globs
	m := members{"when": func(n *yaml.Node) (err error) {
		rule.when, err = p.compile(n, expectedType{boolType(), "when"})
		return err
	}}
	for d, name := range dimensionNames() {
		m[name] = p.globs(&patterns[d])
	}
	if err := p.mapping(n, "a rule", m); err != nil {
		return err
	}
	for d := range patterns {
		p.rules.dimensions[d].add(i, patterns[d])
	}
	return nil
}
