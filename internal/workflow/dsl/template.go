package dsl

import "strings"

// Template is a JSON value that may contain expressions.
type Template struct {
	// value is a JSON value in which an *Expr stands for an expression and a *uriTemplate for a
	// URI.
	value any
	fixed bool
}

// Fixed returns the value if it contains no expression. The caller must not change it.
func (t *Template) Fixed() (any, bool) { return t.value, t.fixed }

// Eval evaluates the expressions. Nil evaluates to its input, ".".
func (t *Template) Eval(s Scope) (any, error) {
	switch {
	case t == nil:
		return s.Data, nil
	case t.fixed:
		return t.value, nil
	}
	v, err := fill(t.value, s)
	if err != nil {
		return nil, err
	}
	if _, err := measure(v, maxValueSize); err != nil {
		return nil, err
	}
	return v, nil
}

func fill(v any, s Scope) (any, error) {
	switch v := v.(type) {
	case *Expr:
		return v.Eval(s)
	case *uriTemplate:
		return v.expand(s.Data)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = fill(e, s); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			filled, err := fill(e, s)
			if err != nil {
				return nil, err
			}
			out[k] = filled
		}
		return out, nil
	}
	return v, nil
}

// embraced returns the text between "${" and "}", if these enclose the whole text.
func embraced(text string) (string, bool) {
	inner, ok := strings.CutPrefix(strings.TrimSpace(text), "${")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(inner, "}")
}
