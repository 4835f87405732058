package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/outgoing"
)

const example = "api.example.com"

func newCaller(t *testing.T, hosts ...string) (*outgoing.Caller, *internet) {
	t.Helper()
	n := openInternet(t, example)
	return outgoing.New(n.client(t, hosts...), func(name string) ([]byte, error) {
		return []byte(map[string]string{"pair": "ann:secret", "token": "t0ken\n", "json": `{"token": "inner"}`}[name]), nil
	}), n
}

func http1(method, path string, more map[string]any) outgoing.Request {
	with := map[string]any{"method": method, "endpoint": "https://" + example + path, "output": "content", "redirect": false}
	maps.Copy(with, more)
	return outgoing.Request{Protocol: dsl.HTTP, With: with, Key: "app/1/step"}
}

func TestRequests(t *testing.T) {
	caller, _ := newCaller(t, example)
	for name, c := range map[string]struct {
		req  outgoing.Request
		want string
	}{
		"text":        {http1("GET", "/text", nil), `"hello"`},
		"query":       {http1("GET", "/echo?a=1", map[string]any{"query": map[string]any{"b": []any{"x y", 2}}}), `{"auth":"","body":"","key":"","query":"a=1\u0026b=x+y\u0026b=2","type":""}`},
		"JSON":        {http1("POST", "/echo", map[string]any{"body": map[string]any{"n": 1}}), `{"auth":"","body":"{\"n\":1}","key":"app/1/step","query":"","type":"application/json"}`},
		"form":        {http1("PUT", "/echo", map[string]any{"body": map[string]any{"n": 1}, "headers": map[string]any{"Content-Type": "application/x-www-form-urlencoded"}}), `{"auth":"","body":"n=1","key":"","query":"","type":"application/x-www-form-urlencoded"}`},
		"own key":     {http1("POST", "/echo", map[string]any{"headers": map[string]any{"idempotency-key": "mine"}}), `{"auth":"","body":"","key":"mine","query":"","type":""}`},
		"basic":       {http1("GET", "/echo", map[string]any{"authentication": map[string]any{"scheme": "basic", "secret": "pair"}}), `{"auth":"Basic YW5uOnNlY3JldA==","body":"","key":"","query":"","type":""}`},
		"bearer":      {http1("GET", "/echo", map[string]any{"authentication": map[string]any{"scheme": "bearer", "secret": "token"}}), `{"auth":"Bearer t0ken","body":"","key":"","query":"","type":""}`},
		"JSON secret": {http1("GET", "/echo", map[string]any{"authentication": map[string]any{"scheme": "bearer", "secret": "json"}}), `{"auth":"Bearer inner","body":"","key":"","query":"","type":""}`},
		"raw":         {http1("GET", "/text", map[string]any{"output": "raw"}), `"aGVsbG8="`},
		"redirect":    {http1("GET", "/moved", map[string]any{"redirect": true, "output": "raw"}), `"PGEgaHJlZj0iL3RleHQiPkZvdW5kPC9hPi4KCg=="`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := caller.Call(t.Context(), c.req)
			if diff := cmp.Diff(c.want, strings.TrimSpace(string(got.Body))); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A request whose connection breaks before the response is not sent again: the service may have
// executed it, though it got the idempotency key of the step.
func TestLostRequestsAreSentOnce(t *testing.T) {
	caller, n := newCaller(t, example)
	for name, more := range map[string]map[string]any{"without a body": nil, "with a body": {"body": "x"}} {
		t.Run(name, func(t *testing.T) {
			if _, err := caller.Call(t.Context(), http1("GET", "/text", nil)); err != nil {
				t.Fatal(err) // it leaves a connection that the next request uses
			}
			if _, err := caller.Call(t.Context(), http1("POST", "/lost", more)); err == nil {
				t.Error("there was a response")
			}
			for range 2 {
				<-n.got
			}
			select {
			case r := <-n.got:
				t.Errorf("%s %s was sent again", r.Method, r.URL)
			default:
			}
		})
	}
}

// A response object shows the request without its credentials.
func TestCredentialsAreNotShown(t *testing.T) {
	caller, n := newCaller(t, example)
	got, err := caller.Call(t.Context(), http1("GET", "/text", map[string]any{
		"output": "response", "authentication": map[string]any{"scheme": "bearer", "token": "t0ken"},
	}))
	if err != nil || strings.Contains(string(got.Body), "t0ken") || !strings.Contains(string(got.Body), `"content":"hello"`) {
		t.Errorf("%s, %v", got.Body, err)
	}
	if r := <-n.got; r.Header.Get("Authorization") != "Bearer t0ken" {
		t.Errorf("the server saw %v", r.Header)
	}
}

func TestErrors(t *testing.T) {
	caller, n := newCaller(t, example)
	for name, c := range map[string]struct {
		req    outgoing.Request
		status int
		kind   string
	}{
		"not found":      {http1("GET", "/nothing", nil), 404, dsl.ErrorCommunication},
		"redirect":       {http1("GET", "/moved", nil), 302, dsl.ErrorCommunication},
		"other host":     {with(http1("GET", "/", nil), "endpoint", "https://other.example.com/"), 403, dsl.ErrorAuthorization},
		"other port":     {with(http1("GET", "/", nil), "endpoint", "https://"+example+":8443/"), 403, dsl.ErrorAuthorization},
		"loopback":       {with(http1("GET", "/", nil), "endpoint", "http://127.0.0.1/"), 403, dsl.ErrorAuthorization},
		"no scheme":      {with(http1("GET", "/", nil), "endpoint", "ftp://"+example+"/"), 400, dsl.ErrorValidation},
		"credentials":    {with(http1("GET", "/", nil), "endpoint", "https://a:b@"+example+"/"), 400, dsl.ErrorValidation},
		"framing header": {http1("GET", "/text", map[string]any{"headers": map[string]any{"host": "x"}}), 400, dsl.ErrorValidation},
		"header's break": {http1("GET", "/text", map[string]any{"headers": map[string]any{"x": "a\r\nb: c"}}), 502, dsl.ErrorCommunication},
		"too large":      {http1("GET", "/huge", nil), 507, dsl.ErrorRuntime},
		"no answer":      {timed(http1("GET", "/never", nil)), 408, dsl.ErrorTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := caller.Call(t.Context(), c.req)
			e, ok := errors.AsType[*dsl.Error](err)
			if !ok || e.Status != c.status || e.Type != c.kind {
				t.Errorf("got %+v, want %d %s", err, c.status, c.kind)
			}
		})
	}
	n.server.Close()
	if _, err := caller.Call(t.Context(), http1("GET", "/text", nil)); err == nil {
		t.Error("a call of a server that is gone succeeds")
	}
}

func with(r outgoing.Request, key string, v any) outgoing.Request {
	r.With[key] = v
	return r
}

func timed(r outgoing.Request) outgoing.Request {
	r.Timeout = 50 * time.Millisecond
	return r
}

const orders = `
openapi: 3.0.3
servers: [{url: "https://{region}.example.com/base", variables: {region: {default: api}}}]
paths:
  /orders/{id}/{part}:
    parameters: [{$ref: "#/components/parameters/id"}]
    post:
      operationId: order
      parameters:
        - {name: part, in: path, required: true, schema: {type: string, default: all}}
        - {name: tag, in: query, schema: {type: array}}
        - {name: csv, in: query, explode: false, schema: {type: array}}
        - {name: X-Trace, in: header, schema: {type: string}}
      requestBody: {required: true, content: {application/json: {}}}
components:
  parameters:
    id: {name: id, in: path, required: true, schema: {type: string}}
`

// fixed answers requests for a document, and returns all others as they are.
type fixed struct{ sent []*http.Request }

func (f *fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recorder{header: http.Header{"Content-Type": {"application/json"}}}
	if r.URL.Path == "/orders.yaml" {
		w.header.Set("Content-Type", "application/yaml")
		return w.response(orders), nil
	}
	f.sent = append(f.sent, r)
	return w.response("{}"), nil
}

func TestOpenAPI(t *testing.T) {
	for name, c := range map[string]struct {
		parameters map[string]any
		want, fail string
	}{
		"all":       {map[string]any{"id": "a/b", "part": "x", "tag": []any{1, 2}, "csv": []any{"a", "b"}, "X-Trace": "7", "seats": 2}, `POST https://api.example.com/base/orders/a%2Fb/x?csv=a%2Cb&tag=1&tag=2 7 {"seats":2}`, ""},
		"default":   {map[string]any{"id": 7, "body": []any{1}}, `POST https://api.example.com/base/orders/7/all  [1]`, ""},
		"missing":   {map[string]any{"body": "x"}, "", `needs the parameter "id"`},
		"no body":   {map[string]any{"id": 7}, "", "needs a body"},
		"traversal": {map[string]any{"id": "..", "body": 1}, "", "another path"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixed{}
			caller := outgoing.New(f, nil)
			_, err := caller.Call(t.Context(), outgoing.Request{Protocol: dsl.OpenAPI, With: map[string]any{
				"endpoint": "https://docs.example.com/orders.yaml", "operationId": "order", "parameters": c.parameters, "output": "content",
			}})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := f.sent[0]
			body := make([]byte, r.ContentLength)
			_, _ = r.Body.Read(body)
			if diff := cmp.Diff(c.want, r.Method+" "+r.URL.String()+" "+r.Header.Get("X-Trace")+" "+string(body)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A document is hostile until it is checked.
// Documents of others whose variables or parameters multiply are refused.
func TestOpenAPIExpansionsAreBounded(t *testing.T) {
	names := strings.Repeat("{a}{b}{c}{d}{e}{f}{g}{h}", 4)
	var variables []string
	for name := range strings.SplitSeq("abcdefgh", "") {
		variables = append(variables, fmt.Sprintf("%q: {\"default\": %q}", name, names))
	}
	operation := `"get": {"operationId": "order", "parameters": [{"in": "path", "name": "id", "required": true, "schema": {"default": "` + strings.Repeat("x", 1<<20) + `"}}]}`
	for name, document := range map[string]string{
		"variables that name each other": `{"servers": [{"url": "https://` + names + `/", "variables": {` + strings.Join(variables, ", ") + `}}], "paths": {"/": {"get": {"operationId": "order"}}}}`,
		"a parameter in a path often":    `{"paths": {"/` + strings.Repeat("{id}", 1<<18) + `": {` + operation + `}}}`,
	} {
		caller := outgoing.New(anyTransport(document), nil)
		_, err := caller.Call(t.Context(), outgoing.Request{Protocol: dsl.OpenAPI, With: map[string]any{"endpoint": "https://docs.example.com/", "operationId": "order"}})
		if e, ok := errors.AsType[*dsl.Error](err); !ok || e.Type != dsl.ErrorValidation {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// served answers requests for a document, after a second, and keeps all others.
type served struct {
	document string
	fetches  atomic.Int32
	sent     chan *http.Request
}

func (s *served) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recorder{header: http.Header{"Content-Type": {"application/json"}}}
	if r.URL.Host == "docs.example.com" {
		time.Sleep(time.Second)
		s.fetches.Add(1)
		return w.response(s.document), nil
	}
	s.sent <- r
	return w.response("{}"), nil
}

func order(parameters map[string]any) outgoing.Request {
	return outgoing.Request{Protocol: dsl.OpenAPI, With: map[string]any{
		"endpoint": "https://docs.example.com/", "operationId": "order", "parameters": parameters, "output": "content",
	}}
}

// Dates, large numbers, and keys that are no texts are no values of JSON: they are used as they are
// written.
func TestOpenAPIOfYAML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{sent: make(chan *http.Request, 1), document: `
openapi: 3.0.3
servers: [{url: "https://api.example.com/"}]
shared: &shared {required: true, in: query}
paths:
  /orders:
    post:
      operationId: order
      parameters:
        - {<<: *shared, name: since, schema: {type: string, format: date, default: 2024-01-01}}
        - {<<: [*shared], name: most, schema: {type: integer, default: 18446744073709551615}}
        - {name: body, in: body, required: true, default: {7: 2024-01-02T03:04:05Z, seats: 0x10}}
      responses: {200: {description: done}}
`}
		if _, err := outgoing.New(s, nil).Call(t.Context(), order(nil)); err != nil {
			t.Fatal(err)
		}
		r := <-s.sent
		body := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		want := `https://api.example.com/orders?most=18446744073709551615&since=2024-01-01 {"7":"2024-01-02T03:04:05Z","seats":16}`
		if diff := cmp.Diff(want, r.URL.String()+" "+string(body)); diff != "" {
			t.Error(diff)
		}
	})
}

// Calls that begin together fetch their document once.
func TestOpenAPIDocumentIsFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 8
		s := &served{sent: make(chan *http.Request, calls+1), document: `{"servers": [{"url": "https://api.example.com/"}], "paths": {"/": {"get": {"operationId": "order"}}}}`}
		caller := outgoing.New(s, nil)
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				if _, err := caller.Call(t.Context(), order(nil)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.fetches.Load(); n != 1 {
			t.Errorf("the document was fetched %d times", n)
		}
		time.Sleep(10 * time.Minute) // it is too old then
		if _, err := caller.Call(t.Context(), order(nil)); err != nil || s.fetches.Load() != 2 {
			t.Errorf("later it was fetched %d times, %v", s.fetches.Load(), err)
		}
	})
}

// An app keeps two documents of the largest size, or many small ones.
func TestKeptOpenAPIDocumentsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{sent: make(chan *http.Request, 100)}
		caller := outgoing.New(s, nil)
		fetch := func(name string) bool {
			before := s.fetches.Load()
			req := order(nil)
			req.With["endpoint"] = "https://docs.example.com/" + name
			if _, err := caller.Call(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			return s.fetches.Load() > before
		}
		const operation = `"servers": [{"url": "https://api.example.com/"}], "paths": {"/": {"get": {"operationId": "order"}}}}`
		s.document = "{" + operation
		fetch("small")
		s.document = `{"all": [0` + strings.Repeat(",0", 500_000) + "], " + operation
		for _, name := range []string{"a", "b"} {
			fetch(name)
		}
		if fetch("a") || fetch("b") || fetch("small") {
			t.Error("documents were fetched again")
		}
		fetch("c") // in the place of the oldest ones
		if fetch("b") || fetch("c") || !fetch("small") {
			t.Error("not the oldest documents were dropped")
		}
	})
}

// The work for a document of another's is linear in its size, which is bounded: otherwise each of
// these takes minutes, or all memory, whatever the time-out of the call.
func TestHostileOpenAPIDocuments(t *testing.T) {
	const operation = `"paths": {"/": {"get": {"operationId": "order", "parameters": `
	var keys, laughs strings.Builder
	for i := range 500_000 {
		fmt.Fprintf(&keys, "%x:\n", i)
	}
	laughs.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9))
	}
	for name, c := range map[string]struct {
		document string
		refused  bool
	}{
		"a mapping with many keys":           {keys.String(), true},
		"aliases of aliases":                 {laughs.String(), true},
		"an alias of itself":                 {"a: &a [*a]", true},
		"a merged mapping of itself":         {"a: &a {<<: *a}", true},
		"deep":                               {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), true},
		"one long reference in many aliases": {`{"servers": [{"url": "https://api.example.com/"}], ` + operation + `[&r {"$ref": "#` + strings.Repeat("/a", 1<<20) + `"}` + strings.Repeat(",*r", 100_000) + `]}}}}`, false},
	} {
		caller := outgoing.New(anyTransport(c.document), nil)
		_, err := caller.Call(t.Context(), order(nil))
		if e, ok := errors.AsType[*dsl.Error](err); c.refused && (!ok || e.Type != dsl.ErrorValidation) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

func FuzzOpenAPI(f *testing.F) {
	for _, text := range []string{orders, petstore, "paths: {/: {get: {operationId: order, parameters: [{in: query, name: q, required: true, default: 2001-01-01}]}}}", `{"paths": {"/a": {"$ref": "#/paths/~1a"}}}`, `{"swagger": 2, "paths": {"/": {"get": {"operationId": "order"}}}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, document string) {
		caller := outgoing.New(anyTransport(document), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := caller.Call(ctx, outgoing.Request{Protocol: dsl.OpenAPI, With: map[string]any{
			"endpoint": "https://docs.example.com/", "operationId": "order", "parameters": map[string]any{"id": "x", "body": "y"}, "output": "content",
		}})
		if _, ok := errors.AsType[*dsl.Error](err); err != nil && !ok {
			t.Errorf("an error of another type: %v", err)
		}
	})
}

// anyTransport answers every request with itself.
type anyTransport string

func (a anyTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return (&recorder{header: http.Header{}}).response(string(a)), nil
}
