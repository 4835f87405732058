package outgoing

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
)

// operation returns the request of a call: openapi.
func (c *Caller) operation(ctx context.Context, with map[string]any) (*message, error) {
	uri, _ := with["endpoint"].(string)
	d, err := c.document(ctx, uri)
	if err != nil {
		return nil, err
	}
	id, _ := with["operationId"].(string)
	o, err := d.find(id)
	if err != nil {
		return nil, err
	}
	given, err := mapping("parameters", with["parameters"])
	if err != nil {
		return nil, err
	}
	return o.message(given)
}

// operation is an operation of a document.
type operation struct {
	*document
	id, method, path string
	// item is the path's, self the operation's own object.
	item, self map[string]any
}

// methods are the members of a path item that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// find returns an operation by its operationId.
func (d *document) find(id string) (*operation, error) {
	paths, _ := d.root["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := d.object(paths[path])
		for _, method := range methods {
			self, _ := item[method].(map[string]any)
			if self != nil && self["operationId"] == id {
				return &operation{document: d, id: id, method: strings.ToUpper(method), path: path, item: item, self: self}, nil
			}
		}
	}
	return nil, invalid("the OpenAPI document %s has no operation %q", d.url, id)
}

// object returns an object, or the one of the same document that it refers to.
func (d *document) object(v any) map[string]any {
	for range 8 { // a chain of references
		m, _ := v.(map[string]any)
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		v = d.at(ref)
	}
	return nil
}

// The bounds of a JSON pointer: a document may repeat it very often.
const (
	maxPointer = 4 << 10
	maxParts   = 32
)

var pointerEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// at returns the value at a JSON pointer, "#/components/parameters/limit".
func (d *document) at(ref string) any {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok || len(pointer) > maxPointer {
		return nil
	}
	var v any = d.root
	parts := 0
	for part := range strings.SplitSeq(pointer, "/") {
		m, _ := v.(map[string]any)
		if parts++; m == nil || parts > maxParts {
			return nil
		}
		v = m[pointerEscapes.Replace(part)]
	}
	return v
}

// base returns the URI to which the paths are relative.
func (o *operation) base() (*url.URL, error) {
	if _, old := o.root["swagger"]; old {
		return o.swaggerBase(), nil
	}
	for _, of := range []map[string]any{o.self, o.item, o.root} {
		servers, _ := of["servers"].([]any)
		if len(servers) == 0 {
			continue
		}
		return o.serverURL(o.object(servers[0]))
	}
	return o.url.Parse("/")
}

// serverURL returns a server's URI, with the default values of its variables.
func (o *operation) serverURL(server map[string]any) (*url.URL, error) {
	text, _ := server["url"].(string)
	variables, _ := server["variables"].(map[string]any)
	text, err := expand(text, func(name string) (string, bool) {
		v, ok := variables[name]
		value, _ := o.object(v)["default"].(string)
		return value, ok
	})
	if err != nil {
		return nil, err
	}
	u, err := o.url.Parse(text)
	if err != nil {
		return nil, invalid("the server %.200q of the OpenAPI document is no URI", text)
	}
	return parseEndpoint(u.String())
}

// maxURI bounds a URI that is made of a document's parts, in bytes.
const maxURI = 64 << 10

// expand replaces the names in braces of a template by their values, once: values are not expanded.
// Names without a value stay.
func expand(template string, value func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	done, open := 0, -1 // the end of what was written, and the last brace that is open
	for i := range len(template) {
		switch {
		case template[i] == '{':
			open = i
		case template[i] == '}' && open >= 0:
			if text, ok := value(template[open+1 : i]); ok {
				b.WriteString(template[done:open])
				b.WriteString(text)
				done = i + 1
			}
			open = -1
		}
		if b.Len() > maxURI {
			break
		}
	}
	if b.Len()+len(template)-done > maxURI {
		return "", invalid("a URI of the OpenAPI document has more than %v", outboard.Bytes(maxURI))
	}
	b.WriteString(template[done:])
	return b.String(), nil
}

// swaggerBase returns the base of a Swagger 2.0 document.
func (o *operation) swaggerBase() *url.URL {
	base := *o.url
	base.Path, base.RawPath, base.RawQuery, base.Fragment = "/", "", "", ""
	if host, _ := o.root["host"].(string); host != "" {
		base.Host = host
	}
	schemes, _ := o.root["schemes"].([]any)
	if own, _ := o.self["schemes"].([]any); own != nil {
		schemes = own
	}
	if len(schemes) > 0 && !slices.Contains(schemes, any(base.Scheme)) {
		if scheme, _ := schemes[0].(string); scheme == "http" || scheme == "https" {
			base.Scheme = scheme
		}
	}
	if path, _ := o.root["basePath"].(string); path != "" {
		base.Path = path
	}
	return &base
}

// message returns the request of the operation with the parameters that were given.
func (o *operation) message(given map[string]any) (*message, error) {
	base, err := o.base()
	if err != nil {
		return nil, err
	}
	b := &requestBuilder{
		operation: o, path: map[string]string{}, query: url.Values{}, form: map[string]any{},
		m: &message{method: o.method, header: http.Header{}}, left: maps.Clone(given),
	}
	if err := b.addParameters(); err != nil {
		return nil, err
	}
	if err := b.addBody(); err != nil {
		return nil, err
	}
	path, err := expand(o.path, func(name string) (string, bool) { text, ok := b.path[name]; return text, ok })
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(base.String(), "/") + path
	if b.m.url, err = parseEndpoint(text); err != nil {
		return nil, err
	}
	if len(b.query) > 0 {
		b.m.url.RawQuery = b.query.Encode()
	}
	return b.m, nil
}
