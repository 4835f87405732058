package dsl

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// expressionReader compiles expressions with the local variables in scope.
type expressionReader struct {
	*yamlReader
	locals []string
}

// expression parses a text that is an expression, with or without its braces.
func (r *expressionReader) expression(n *yaml.Node, subject string) *Expr {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.report(n, "%s must be an expression, \"${ ... }\"", subject)
		return nil
	}
	text := n.Value
	if inner, ok := embraced(text); ok {
		text = inner
	}
	return r.compile(n, text)
}

func (r *expressionReader) compile(n *yaml.Node, text string) *Expr {
	if strings.TrimSpace(text) == "" {
		r.report(n, "the expression is empty")
		return nil
	}
	e, err := compile(text, r.locals)
	if err != nil {
		r.report(n, "%v", err)
		return nil
	}
	return e
}

// template parses a value in which texts of the form "${ ... }" are expressions.
func (r *expressionReader) template(n *yaml.Node) *Template {
	t := &Template{fixed: true}
	t.value = r.templateValue(n, t)
	return t
}

// expressions parses a value as template does, but every text is an expression.
func (r *expressionReader) expressions(n *yaml.Node, subject string) *Template {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return &Template{value: r.expression(n, subject)}
	}
	return r.template(n)
}

func (r *expressionReader) templateValue(n *yaml.Node, t *Template) any {
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			out[n.Content[i].Value] = r.templateValue(n.Content[i+1], t)
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, e := range n.Content {
			out[i] = r.templateValue(e, t)
		}
		return out
	default:
		return r.templateScalar(n, t)
	}
}

func (r *expressionReader) templateScalar(n *yaml.Node, t *Template) any {
	if inner, ok := embraced(n.Value); ok && n.ShortTag() == "!!str" {
		t.fixed = false
		return r.compile(n, inner)
	}
	if begin := strings.Index(n.Value, "${"); begin >= 0 && strings.Contains(n.Value[begin:], "}") {
		r.report(n, `an expression must be the whole text: write "${ \"Hello \\(.name)\" }" for "Hello ${ .name }"`)
	}
	v, err := scalar(n)
	if err != nil {
		r.report(n, "%v", err)
	}
	return v
}
