package dsl

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// The protocols of calls to services outside of the app.
const (
	HTTP    = "http"
	OpenAPI = "openapi"
	GRPC    = "grpc"
)

// Service is a call to a service outside of the app.
type Service struct {
	// Protocol is HTTP, OpenAPI or GRPC.
	Protocol string
	// With evaluates to a mapping with the arguments by the names that the DSL gives them, with
	// these differences: the defaults are filled in, an endpoint is its URI in "endpoint", and
	// "authentication" is {scheme: basic or bearer} with the credentials, or with the name of the
	// app's secret that holds them in "secret".
	With *Template
}

var (
	services       = []string{HTTP, OpenAPI, GRPC}
	outputs        = []string{"content", "raw", "response"}
	methodName     = lazyregexp.New(`^[A-Za-z]{1,32}$`)
	serviceName    = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.]{0,255}$`)
	refusedSchemes = map[string]string{
		"digest":      "write basic or bearer, or make the call in a function",
		"oauth2":      "write bearer with a token of a secret, or make the call in a function",
		"oidc":        "write bearer with a token of a secret, or make the call in a function",
		"certificate": "make the call in a function",
	}
)

// service parses the arguments of a call to a service.
func (r *parser) service(protocol string, n, with *yaml.Node) *Service {
	if with == nil {
		r.report(n, "call: %s has no with: it must say what is called", protocol)
		return nil
	}
	b := &argumentReader{parser: r, protocol: protocol, template: &Template{fixed: true}, values: map[string]any{}}
	switch protocol {
	case HTTP:
		b.http(with)
	case OpenAPI:
		b.openAPI(with)
	case GRPC:
		b.grpc(with)
	}
	b.template.value = b.values
	return &Service{Protocol: protocol, With: b.template}
}

// argumentReader builds the arguments of one call.
type argumentReader struct {
	*parser
	protocol string
	template *Template
	values   map[string]any
}

func (r *argumentReader) http(with *yaml.Node) {
	f, ok := r.mapping(with, "with", []string{"method", "endpoint", "headers", "body", "query", "output", "redirect"}, nil)
	if !ok {
		return
	}
	if m := f.keys["method"]; m == nil || !methodName.MatchString(m.Value) {
		r.report(with, "with.method must be a method of HTTP, such as get")
	} else {
		r.values["method"] = strings.ToUpper(m.Value)
	}
	r.endpoint(f, "endpoint")
	r.optional(f, "headers")
	r.optional(f, "query")
	r.optional(f, "body")
	r.result(f)
}

func (r *argumentReader) openAPI(with *yaml.Node) {
	f, ok := r.mapping(with, "with", []string{"document", "operationId", "parameters", "authentication", "output", "redirect"}, nil)
	if !ok {
		return
	}
	if d := f.keys["document"]; d == nil {
		r.report(with, "with has no document: write {endpoint: URI of the OpenAPI document}")
	} else if g, ok := r.mapping(d, "with.document", []string{"endpoint", "name"}, nil); ok {
		r.endpoint(g, "endpoint")
		delete(r.values, "authentication") // it is the document's, and the operation has its own
	}
	r.word(f, "operationId", "the operationId of an operation in the document", nil)
	r.optional(f, "parameters")
	if a := f.keys["authentication"]; a != nil {
		r.authentication(a)
	}
	r.result(f)
}

func (r *argumentReader) grpc(with *yaml.Node) {
	f, ok := r.mapping(with, "with", []string{"proto", "service", "method", "arguments"}, nil)
	if !ok {
		return
	}
	r.word(f, "method", "the name of a method of the service", serviceName)
	r.optional(f, "arguments")
	s := f.keys["service"]
	if s == nil {
		r.report(with, "with has no service: write {name: PACKAGE.SERVICE, host: pool}")
		return
	}
	g, ok := r.mapping(s, "with.service", []string{"name", "host", "port", "authentication"}, nil)
	if !ok {
		return
	}
	r.word(g, "name", "the full name of a service", serviceName)
	r.values["service"] = r.values["name"]
	if name, _ := r.values["name"].(string); name != "" && r.rules.Service != nil {
		if problem := r.rules.Service(name); problem != "" {
			r.report(g.keys["name"], "%s", problem)
		}
	}
	delete(r.values, "name")
	if h := g.keys["host"]; h != nil && h.Value != PoolHost {
		r.report(h, "with.service.host %s is not supported: the services of the pool are called, with `host: %s`; a server outside of the pool joins with `outboard endpoints add`", h.Value, PoolHost)
	}
	for _, key := range []string{"port", "authentication"} {
		if v := g.keys[key]; v != nil {
			r.report(v, "with.service.%s is not supported: the pool finds the service by its name, and its policies say which callers may", key)
		}
	}
}

// PoolHost is the host of the services that are called through the pool.
const PoolHost = "pool"

// word parses an argument that is a fixed text.
func (r *argumentReader) word(f fields, key, want string, pattern *lazyregexp.Regexp) {
	n := f.keys[key]
	if n == nil {
		r.report(f.node, "%s is missing: it must be %s", key, want)
		return
	}
	text, ok := r.text(n, key)
	if ok && (text == "" || pattern != nil && !pattern.MatchString(text)) {
		r.report(n, "%s %q must be %s", key, text, want)
	}
	r.values[key] = text
}

// optional parses an argument that may contain expressions.
func (r *argumentReader) optional(f fields, key string) {
	if n := f.keys[key]; n != nil {
		r.values[key] = r.templateValue(n, r.template)
	}
}

// result parses which part of the response is the output.
func (r *argumentReader) result(f fields) {
	r.values["output"], r.values["redirect"] = outputs[0], false
	if o := f.keys["output"]; o != nil {
		if r.values["output"] = o.Value; !slices.Contains(outputs, o.Value) {
			r.report(o, "with.output %q is not supported: write one of %s", o.Value, list(outputs))
		}
	}
	if n := f.keys["redirect"]; n != nil {
		r.values["redirect"] = r.boolean(n, "with.redirect")
	}
}

// endpoint parses a URI, or {uri: ..., authentication: ...}.
func (r *argumentReader) endpoint(f fields, key string) {
	n := f.keys[key]
	if n == nil {
		r.report(f.node, "%s is missing: it must be a URI", key)
		return
	}
	if n.Kind == yaml.MappingNode {
		g, ok := r.mapping(n, key, []string{"uri", "authentication"}, nil)
		if a := g.keys["authentication"]; a != nil {
			r.authentication(a)
		}
		if n = g.keys["uri"]; n == nil || !ok {
			if ok {
				r.report(g.node, "%s has no uri", key)
			}
			return
		}
	}
	r.values["endpoint"] = r.uri(n, key)
}

// uri parses a URI, which may be an expression or contain variables, "{name}".
func (r *argumentReader) uri(n *yaml.Node, subject string) any {
	if _, ok := embraced(n.Value); ok {
		return r.templateValue(n, r.template)
	}
	text, ok := r.text(n, subject)
	if !ok {
		return ""
	}
	t, problem := parseURI(text)
	if problem != "" {
		r.report(n, "%s %q: %s", subject, text, problem)
		return ""
	}
	if t.scheme != "" && r.rules.Host != nil {
		if problem := r.rules.Host(t.scheme, t.host); problem != "" {
			r.report(n, "%s", problem)
		}
	}
	if len(t.variables) == 0 {
		return text
	}
	r.template.fixed = false
	return t
}

// uriTemplate is a URI with variables (RFC 6570, level 1). Its parts surround the variables.
type uriTemplate struct {
	parts, variables []string
	// scheme and host are "" where variables are in them.
	scheme, host string
}

var uriVariable = lazyregexp.New(`\{([^{}]*)\}`)

func parseURI(text string) (t *uriTemplate, problem string) {
	t = &uriTemplate{}
	last := 0
	for _, at := range uriVariable.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		if !variableName.MatchString(name) {
			return nil, "{" + name + "} is not supported: a variable is written {name}; others are put together by an expression"
		}
		t.parts, t.variables, last = append(t.parts, text[last:at[0]]), append(t.variables, name), at[1]
	}
	t.parts = append(t.parts, text[last:])
	u, err := url.Parse(uriVariable.ReplaceAllString(text, "x"))
	switch {
	case err != nil:
		return nil, "this is no URI: " + err.Error()
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "a URI begins with https:// or http://"
	case u.Host == "":
		return nil, "the URI has no host"
	case u.User != nil:
		return nil, "credentials in a URI are not supported: write authentication"
	}
	scheme, rest, _ := strings.Cut(t.parts[0], "://")
	if authority, _, complete := cutAuthority(rest); complete || len(t.variables) == 0 {
		t.scheme, t.host = scheme, authority
	}
	return t, ""
}

// cutAuthority cuts the authority off the part of a URI behind "://". complete says that it has
// ended.
func cutAuthority(text string) (authority, rest string, complete bool) {
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		return text[:i], text[i:], true
	}
	return text, "", false
}

// maxURI bounds a URI's variables, and all of it before the last, in bytes.
const maxURI = 64 << 10

var errURI = errors.New("the URI is longer than 64 KiB")

// expand replaces the variables by the members of the data, percent-encoded.
func (t *uriTemplate) expand(data any) (string, error) {
	members, _ := data.(map[string]any)
	var b strings.Builder
	for i, name := range t.variables {
		v, ok := members[name]
		if !ok {
			return "", &missingError{name}
		}
		text, err := uriText(name, v)
		if err != nil {
			return "", err
		}
		if b.Len()+len(text) > maxURI {
			return "", errURI
		}
		b.WriteString(t.parts[i] + url.PathEscape(text))
	}
	return b.String() + t.parts[len(t.variables)], nil
}

// authentication parses a policy, or the name of a policy in use.authentications.
func (r *argumentReader) authentication(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		r.namedAuthentication(n)
		return
	}
	f, ok := r.mapping(n, "authentication", []string{"use", "basic", "bearer"}, refusedSchemes)
	if !ok {
		return
	}
	if len(f.keys) != 1 {
		r.report(n, "authentication must have one of use, basic and bearer")
		return
	}
	for scheme, v := range f.keys {
		if scheme == "use" {
			r.namedAuthentication(v)
			return
		}
		r.values["authentication"] = r.credentials(scheme, v)
	}
}

func (r *argumentReader) namedAuthentication(n *yaml.Node) {
	named := r.authentications[n.Value]
	if named == nil || named.Kind != yaml.MappingNode || hasKey(named, "use") {
		r.report(n, "authentication %q is not in use.authentications: define it there with basic or bearer", n.Value)
		return
	}
	r.authentication(named)
}

// credentials parses {username: ..., password: ...}, {token: ...}, or {use: SECRET}.
func (r *argumentReader) credentials(scheme string, n *yaml.Node) map[string]any {
	keys := map[string][]string{"basic": {"username", "password"}, "bearer": {"token"}}[scheme]
	f, ok := r.mapping(n, scheme, append([]string{"use"}, keys...), nil)
	out := map[string]any{"scheme": scheme}
	if !ok {
		return out
	}
	if use := f.keys["use"]; use != nil {
		if len(f.keys) > 1 {
			r.report(n, "%s.use names a secret, and the rest is in it: leave one out", scheme)
		}
		r.checkSecret(use, use.Value)
		out["secret"] = use.Value
		return out
	}
	for _, key := range keys {
		v := f.keys[key]
		if v == nil {
			r.report(n, "%s has no %s: write it, or use: SECRET of the app's manifest", scheme, key)
			continue
		}
		out[key] = r.templateValue(v, r.template)
	}
	return out
}
