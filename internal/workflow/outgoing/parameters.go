package outgoing

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// requestBuilder distributes the parameters of a call over its request.
type requestBuilder struct {
	*operation
	m     *message
	path  map[string]string // values in the path, by their names
	query url.Values
	form  map[string]any
	// left are the given parameters that have no place yet.
	left map[string]any
	// body is set by a parameter in the body (Swagger 2.0).
	body any
}

// parameters returns the parameters of the operation and of its path, by place and name.
func (b *requestBuilder) parameters() []map[string]any {
	by := map[string]map[string]any{}
	for _, of := range []map[string]any{b.item, b.self} {
		list, _ := of["parameters"].([]any)
		for _, v := range list {
			p := b.object(v)
			in, _ := p["in"].(string)
			name, _ := p["name"].(string)
			by[in+" "+name] = p
		}
	}
	var out []map[string]any
	for _, key := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[key])
	}
	return out
}

func (b *requestBuilder) addParameters() error {
	for _, p := range b.parameters() {
		name, _ := p["name"].(string)
		v, ok := b.left[name]
		if !ok {
			v, ok = b.defaultOf(p)
		}
		if !ok || v == nil {
			if p["required"] == true {
				return invalid("the operation %s needs the parameter %q: add it to with.parameters", b.id, name)
			}
			continue
		}
		delete(b.left, name)
		if err := b.add(p, name, v); err != nil {
			return err
		}
	}
	return nil
}

// defaultOf returns the default value of a parameter that is required.
func (b *requestBuilder) defaultOf(p map[string]any) (any, bool) {
	if p["required"] != true {
		return nil, false
	}
	if v, ok := p["default"]; ok {
		return v, true
	}
	v, ok := b.object(p["schema"])["default"]
	return v, ok
}

// add puts a parameter into its place.
func (b *requestBuilder) add(p map[string]any, name string, v any) error {
	if p["in"] == "body" {
		b.body = v
		return nil
	}
	values, err := texts("parameters."+name, v)
	if err != nil {
		return err
	}
	switch p["in"] {
	case "path":
		escaped := make([]string, len(values))
		for i, text := range values {
			if text == "." || text == ".." {
				return invalid("parameters.%s: %q would name another path", name, text)
			}
			escaped[i] = url.PathEscape(text)
		}
		b.path[name] = strings.Join(escaped, ",")
	case "query":
		b.query[name] = joined(p, values)
	case "header":
		return b.m.setHeaders(map[string]any{name: strings.Join(values, ",")})
	case "cookie":
		b.m.header.Add("Cookie", name+"="+url.QueryEscape(strings.Join(values, ",")))
	case "formData":
		b.form[name] = v
	}
	return nil
}

// joined returns the values of a query parameter: one for each item of a list, or one with all
// items.
func joined(p map[string]any, values []string) []string {
	separator := ","
	switch format, _ := p["collectionFormat"].(string); format { // Swagger 2.0
	case "multi":
		return values
	case "ssv":
		separator = " "
	case "tsv":
		separator = "\t"
	case "pipes":
		separator = "|"
	case "":
		_, schema := p["schema"] // OpenAPI 3: a parameter has a schema, and lists are exploded by default
		if explode, set := p["explode"].(bool); schema && (!set || explode) {
			return values
		}
		switch p["style"] {
		case "spaceDelimited":
			separator = " "
		case "pipeDelimited":
			separator = "|"
		}
	}
	return []string{strings.Join(values, separator)}
}

// addBody sets the body: a parameter of that place, a form, or, for OpenAPI 3, the parameter "body"
// or an object of the parameters that have no place.
func (b *requestBuilder) addBody() error {
	request := b.object(b.self["requestBody"])
	if request != nil && len(b.left) > 0 {
		body, present := b.left["body"]
		if present && len(b.left) == 1 {
			b.body = body
		} else {
			b.body = maps.Clone(b.left)
		}
		clear(b.left)
		content, _ := request["content"].(map[string]any)
		if content[typeJSON] == nil && content[typeForm] != nil {
			b.m.setType(typeForm)
		}
	}
	switch {
	case len(b.left) > 0:
		unknown := slices.Sorted(maps.Keys(b.left))
		return invalid("the operation %s has no parameter %q", b.id, unknown[0])
	case request["required"] == true && b.body == nil:
		return invalid("the operation %s needs a body: add its members, or body, to with.parameters", b.id)
	case len(b.form) > 0:
		return b.m.setForm(b.form)
	}
	return b.m.setBody(b.body)
}
