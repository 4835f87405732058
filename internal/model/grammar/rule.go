package grammar

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A node is an expression of a grammar.
type node interface {
	// write appends the expression in GBNF.
	write(b *strings.Builder)
	// ends reports whether a finite text matches the expression, given the rules that are known to
	// match one.
	ends(rules map[string]bool) bool
}

type (
	literal  string // all nodes, in order
	charset  string // one of the nodes
	sequence []node // all of them, in order
	choice   []node // one of them
	ref      string // a rule, by its name
	repeated struct {
		node     node
		min, max int
	}
)

func (l literal) write(b *strings.Builder) {
	b.WriteByte('"')
	for _, r := range string(l) {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(b, `\x%02X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func (c charset) write(b *strings.Builder) { b.WriteString(string(c)) }
func (r ref) write(b *strings.Builder)     { b.WriteString(string(r)) }

func (s sequence) write(b *strings.Builder) {
	if len(s) == 0 {
		b.WriteString(`""`)
	}
	for i, n := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		n.write(b)
	}
}

func (c choice) write(b *strings.Builder) {
	b.WriteByte('(')
	for i, n := range c {
		if i > 0 {
			b.WriteString(" | ")
		}
		n.write(b)
	}
	b.WriteByte(')')
}

func (r repeated) write(b *strings.Builder) {
	b.WriteByte('(')
	r.node.write(b)
	b.WriteByte(')')
	switch {
	case r.max < 0 && r.min == 0:
		b.WriteByte('*')
	case r.max < 0:
		fmt.Fprintf(b, "{%d,}", r.min)
	default:
		fmt.Fprintf(b, "{%d,%d}", r.min, r.max)
	}
}

func (literal) ends(map[string]bool) bool          { return true }
func (charset) ends(map[string]bool) bool          { return true }
func (r ref) ends(rules map[string]bool) bool      { return rules[string(r)] }
func (r repeated) ends(rules map[string]bool) bool { return r.min == 0 || r.node.ends(rules) }

func (s sequence) ends(rules map[string]bool) bool {
	for _, n := range s {
		if !n.ends(rules) {
			return false
		}
	}
	return true
}

func (c choice) ends(rules map[string]bool) bool {
	for _, n := range c {
		if n.ends(rules) {
			return true
		}
	}
	return false
}

// A rule is a named expression.
type rule struct {
	name string
	node node
	path string // of the schema from which the rule was compiled
}

// checkFinite refuses values, nodes of the rules, that no finite text matches. The error names the
// first rule without one.
func checkFinite(rules []rule, values ...node) error {
	known, err := finite(rules)
	if err != nil {
		return err
	}
	for _, v := range values {
		// A rule without a finite text is harmless while a choice avoids it.
		if v.ends(known) {
			continue
		}
		for _, r := range rules {
			if !known[r.name] && r.path != "" {
				return errUnending(r.path)
			}
		}
		return errUnending("#")
	}
	return nil
}

// maxPasses bounds the passes of finite. A pass in each direction suffices unless references lead
// back and forth between definitions.
const maxPasses = 256

// finite returns the rules that a finite text matches: the least fixed point of ends. Rules follow
// those to which they refer, except for the targets of references, which precede them: so passes
// alternate in direction.
func finite(rules []rule) (map[string]bool, error) {
	known := make(map[string]bool, len(rules))
	add := func(r rule) bool {
		if known[r.name] || !r.node.ends(known) {
			return false
		}
		known[r.name] = true
		return true
	}
	for range maxPasses {
		changed := false
		for _, r := range rules {
			changed = add(r) || changed
		}
		for _, r := range slices.Backward(rules) {
			changed = add(r) || changed
		}
		if !changed {
			return known, nil
		}
	}
	return nil, errTooLarge("#")
}

func validText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
