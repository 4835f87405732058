package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/metricstest"
)

func shop(routes ...gateway.Route) gateway.App { return gateway.App{Name: "shop", Routes: routes} }

func to(function string) gateway.Target { return gateway.Target{Function: function} }

func TestRoutes(t *testing.T) {
	echo := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		id, _ := c.Meta("id")
		rest, _ := c.Meta("rest")
		return text(c.Function + c.Workflow + "|" + c.Route + "|" + id + rest + "|" + string(c.Body)), nil
	})
	g := newGateway(t, gateway.Options{Invoker: echo}, shop(
		gateway.Route{Path: "/items", Methods: []string{"GET"}, Target: to("list")},
		gateway.Route{Path: "/items", Methods: []string{"POST", "PUT"}, Target: to("add")},
		gateway.Route{Path: "/items/{id}", Target: to("one")},
		gateway.Route{Path: "/items/best", Target: to("best")},
		gateway.Route{Path: "/files/{rest...}", Target: to("files")},
		gateway.Route{Path: "/order", Methods: []string{"POST"}, Target: gateway.Target{Workflow: "order"}},
		gateway.Route{Path: "/price", Methods: []string{"POST"}, Target: gateway.Target{Workflow: "price", Wait: true}},
	), gateway.App{Name: "docs", Routes: []gateway.Route{{Path: "/", Target: to("page")}}})
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"get":          {"GET", "/shop/items", "", 200, "list|GET /items||"},
		"head":         {"HEAD", "/shop/items", "", 200, ""},
		"post":         {"POST", "/shop/items", "x", 200, "add|POST /items||x"},
		"parameter":    {"DELETE", "/shop/items/7%2f8", "", 200, "one|/items/{id}|7/8|"},
		"more exact":   {"GET", "/shop/items/best", "", 200, "best|/items/best||"},
		"rest":         {"GET", "/shop/files/a/b?x=1", "", 200, "files|/files/{rest...}|a/b|"},
		"workflow":     {"POST", "/shop/order", "{}", 202, "order|POST /order||{}"},
		"waited for":   {"POST", "/shop/price", "{}", 200, "price|POST /price||{}"},
		"all":          {"GET", "/docs/any/thing", "", 200, "page|/||"},
		"wrong method": {"DELETE", "/shop/items", "", 405, "method DELETE: this route of the app shop takes GET, HEAD, POST, PUT"},
		"wrong route":  {"GET", "/shop/nothing", "", 404, `path "/shop/nothing": the app shop has no such route`},
		"wrong app":    {"GET", "/other/items", "", 404, `path "/other/items": there is no app "other" here`},
		"root":         {"GET", "/", "", 404, `path "/": there is no app "" here`},
		"other case":   {"GET", "/Shop/items", "", 404, `path "/Shop/items": there is no app "Shop" here`},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(g, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			got := r.text
			if r.StatusCode >= 400 {
				got = wantProblem(t, r).Detail
			}
			if r.StatusCode != c.status || got != c.want {
				t.Errorf("got %d %q, want %d %q", r.StatusCode, got, c.status, c.want)
			}
			if allow := r.Header.Get("Allow"); (allow != "") != (c.status == 405) {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
}

func wantProblem(t *testing.T, r answer) gateway.Problem {
	t.Helper()
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: got %q", got)
	}
	var p gateway.Problem
	if err := json.Unmarshal([]byte(r.text), &p); err != nil || p.Status != r.StatusCode || p.Title == "" {
		t.Errorf("problem document: %v %q", err, r.text)
	}
	return p
}

// limit is an error about a limit.
type limit string

func (l limit) Error() string     { return string(l) + " limit reached" }
func (l limit) LimitName() string { return string(l) }

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		answer gateway.Answer
		status int
		retry  bool
		want   gateway.Problem
	}{
		"nothing": {status: 502, want: gateway.Problem{Detail: "call shop POST /: the function returned nothing", Kind: "protocol"}},
		"busy": {
			err:    outboard.Errorf(outboard.Busy, "call f", "8 calls at a time"),
			status: 429, retry: true, want: gateway.Problem{Detail: "call f: 8 calls at a time", Kind: "busy"},
		},
		"deadline": {
			err: &outboard.Error{Op: "call f", Kind: outboard.Exhausted, Err: limit("deadline")}, status: 504,
			want: gateway.Problem{Detail: "call f: deadline limit reached", Kind: "exhausted", Limit: "deadline"},
		},
		"waited too long": {err: fmt.Errorf("call f: %w", context.DeadlineExceeded), status: 504, want: gateway.Problem{Detail: "call f: context deadline exceeded", Kind: "other"}},
		"memory": {
			err: &outboard.Error{Op: "call f", Kind: outboard.Exhausted, Err: limit("memory")}, status: 507,
			want: gateway.Problem{Detail: "call f: memory limit reached", Kind: "exhausted", Limit: "memory"},
		},
		"fuel": {
			err: &outboard.Error{Op: "call f", Kind: outboard.Exhausted, Err: limit("fuel")}, status: 504,
			want: gateway.Problem{Detail: "call f: fuel limit reached", Kind: "exhausted", Limit: "fuel"},
		},
		"trap": {
			err: errors.New("trap: unreachable\nwasm stack trace:\n\t.handle()"), status: 500,
			want: gateway.Problem{Detail: "trap: unreachable", Kind: "other"},
		},
		"invalid":  {err: outboard.Errorf(outboard.Invalid, "read", "no"), status: 400, want: gateway.Problem{Detail: "read: no", Kind: "invalid"}},
		"denied":   {err: outboard.Errorf(outboard.Denied, "read", "no"), status: 403, want: gateway.Problem{Detail: "read: no", Kind: "denied"}},
		"conflict": {err: outboard.Errorf(outboard.Conflict, "read", "no"), status: 409, want: gateway.Problem{Detail: "read: no", Kind: "conflict"}},
		"closing":  {err: outboard.Errorf(outboard.SessionLost, "read", "no"), status: 503, retry: true, want: gateway.Problem{Detail: "read: no", Kind: "session_lost"}},
		"given up": {err: context.Canceled, status: 503, retry: true, want: gateway.Problem{Detail: "context canceled"}},
		"long": {
			err: errors.New(strings.Repeat("é", 1000)), status: 500,
			want: gateway.Problem{Detail: strings.Repeat("é", 256) + "...", Kind: "other"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return c.answer, c.err })
			g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Methods: []string{"POST"}, Target: to("f")}))
			r := ask(g, post("/shop/", "x"))
			got := wantProblem(t, r)
			if len(got.Trace) != 32 {
				t.Errorf("trace %q", got.Trace)
			}
			c.want.Status, c.want.Title, got.Trace = c.status, http.StatusText(c.status), ""
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Error(diff)
			}
			if (r.Header.Get("Retry-After") != "") != c.retry {
				t.Errorf("Retry-After: %q", r.Header.Get("Retry-After"))
			}
		})
	}
}

func TestBodies(t *testing.T) {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		return text(fmt.Sprint(len(c.Body))), nil
	})
	g := newGateway(t, gateway.Options{Invoker: f, MaxBody: 100}, shop(
		gateway.Route{Path: "/", Target: to("f")}, gateway.Route{Path: "/large", Target: to("f"), MaxBody: 1 << 20},
		gateway.Route{Path: "/http", Target: to("f"), HTTP: true, MaxBody: 200 << 10},
	))
	for name, c := range map[string]struct {
		path   string
		body   io.Reader
		status int
		want   string
	}{
		"fits":             {"/shop/", strings.NewReader(strings.Repeat("x", 100)), 200, "100"},
		"announced":        {"/shop/", strings.NewReader(strings.Repeat("x", 101)), 413, "the body is larger than 100B, the largest that the route takes: its key `request` in the manifest sets that"},
		"found out":        {"/shop/", io.MultiReader(strings.NewReader(strings.Repeat("x", 101))), 413, "the body is larger than 100B, the largest that the route takes: its key `request` in the manifest sets that"},
		"route's own":      {"/shop/large", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))), 200, "1048576"},
		"one more":         {"/shop/large", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20+1))), 413, "the body is larger than 1MiB, the largest that the route takes: its key `request` in the manifest sets that"},
		"cut off":          {"/shop/large", io.MultiReader(strings.NewReader("x"), broken{}), 400, "the body did not come whole: connection reset"},
		"too slow":         {"/shop/large", io.MultiReader(strings.NewReader("x"), slow{}), 408, "the body came too slowly"},
		"message, cut off": {"/shop/http", io.MultiReader(strings.NewReader("x"), broken{}), 400, "the body did not come whole: connection reset"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(g, httptest.NewRequest(http.MethodPost, c.path, c.body))
			got := r.text
			if r.StatusCode >= 400 {
				got = wantProblem(t, r).Detail
			}
			if r.StatusCode != c.status || got != c.want {
				t.Errorf("got %d %q, want %d %q", r.StatusCode, got, c.status, c.want)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type slow struct{}

func (slow) Read([]byte) (int, error) { return 0, slow{} }
func (slow) Error() string            { return "timeout" }
func (slow) Timeout() bool            { return true }

func TestTypes(t *testing.T) {
	for name, c := range map[string]struct{ answer, set, want string }{
		"json":       {` {"a": 1}`, "", "application/json"},
		"list":       {`[1]`, "", "application/json"},
		"no json":    {`{"a": `, "", "text/plain; charset=utf-8"},
		"text":       {"hello", "", "text/plain; charset=utf-8"},
		"bytes":      {"\x00\x01\x02", "", "application/octet-stream"},
		"picture":    {"\x89PNG\x0d\x0a\x1a\x0a", "", "image/png"},
		"as it says": {"hello", "text/csv", "text/csv"},
		"injection":  {"hello", "text/csv\r\nX: y", "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
				return gateway.Answer{Body: []byte(c.answer), Type: c.set}, nil
			})
			g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
			if got := ask(g, get("/shop/")).Header.Get("Content-Type"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMeta(t *testing.T) {
	got := map[string]string{}
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		for _, name := range []string{"method", "path", "query", "route", "remote", "host", "id", "x-colour", "trace", "nothing", "Cookie", "ws.id"} {
			if value, ok := c.Meta(name); ok {
				got[name] = value
			}
		}
		return text("x"), nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/items/{id}", Target: to("f")}))
	r := get("/shop/items/7?a=b")
	r.Header["X-Colour"] = []string{"red", "blue"}
	r.Header.Set("Id", "8")
	r.Header.Set("Ws.id", "9")
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ask(g, r)
	want := map[string]string{
		"method": "GET", "path": "/items/7", "query": "a=b", "route": "/items/{id}", "remote": "192.0.2.1:1234", "host": "example.com",
		"id": "7", "x-colour": "red, blue", "trace": "0af7651916cd43dd8448eb211c80319c",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}

// TestRouteAsOneValue: a function that takes HTTP messages gets its route with the parameters' values
// and the lengths of its message's parts in one piece of metadata, unless a value has a line break.
func TestRouteAsOneValue(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		http bool
		want string
	}{
		"parameters":   {"/shop/items/7/a/b", true, "/items/{id}/{rest...}\n7\na/b"},
		"none":         {"/shop/", true, "/{$}"},
		"empty":        {"/shop/items/7/", true, "/items/{id}/{rest...}\n7\n"},
		"line break":   {"/shop/items/7%0A8/a", true, ""},
		"no messages":  {"/shop/items/7/a", false, ""},
		"from clients": {"/shop/", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got, parts string
			f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				got, _ = c.Meta("http.route")
				parts = partsOf(string(c.Body))
				return text("x"), nil
			})
			g := newGateway(t, gateway.Options{Invoker: f}, shop(
				gateway.Route{Path: "/items/{id}/{rest...}", Target: to("f"), HTTP: c.http}, gateway.Route{Path: "/{$}", Target: to("f"), HTTP: c.http},
			))
			r := get(c.path)
			r.Header.Set("Http.route", "forged")
			ask(g, r)
			if c.want != "" {
				c.want += "\n" + parts
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// partsOf returns the lengths of the parts of a message's head, as `http.route` has them.
func partsOf(message string) string {
	var b []byte
	head, _, _ := strings.Cut(message, "\r\n\r\n")
	for i, line := range strings.Split(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		if i == 0 {
			name, value, _ = strings.Cut(strings.TrimSuffix(line, " HTTP/1.1"), " ")
		}
		b = append(b, byte(len(name)), byte(len(value)>>8), byte(len(value)))
	}
	return string(b)
}

// TestLengths covers the heads whose parts are as long as a length can be, and longer.
func TestLengths(t *testing.T) {
	for name, c := range map[string]struct {
		name, value int
		known       bool
	}{
		"longest name":  {255, 1, true},
		"long name":     {256, 1, false},
		"longest value": {5, 65535, true},
		"long value":    {5, 65536, false},
		"no value":      {5, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			head := "GET /a HTTP/1.1\r\n" + strings.Repeat("X", c.name) + ": " + strings.Repeat("y", c.value) + "\r\nB: \r\n\r\n: \n"
			want := ""
			if c.known {
				want = partsOf(head)
			}
			if got := gateway.Lengths(head); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestRequestsCounted(t *testing.T) {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) { return text("x"), nil })
	registry := prometheus.NewRegistry()
	g := newGateway(t, gateway.Options{Invoker: f, Metrics: registry, MaxBody: 1}, shop(
		gateway.Route{Path: "/{$}", Target: to("f")}, gateway.Route{Path: "/only/get", Methods: []string{"GET"}, Target: to("f")},
	))
	ask(g, get("/shop/"))
	ask(g, get("/shop/"))
	ask(g, post("/shop/", "xxx"))
	ask(g, get("/shop/x"))
	ask(g, httptest.NewRequest(http.MethodDelete, "/shop/only/get", nil))
	const name = "outboard_gateway_requests_total"
	want := `# HELP outboard_gateway_requests_total HTTP requests to apps, by the status of their answers.
# TYPE outboard_gateway_requests_total counter
outboard_gateway_requests_total{app="shop",code="200",route="/{$}"} 2
outboard_gateway_requests_total{app="shop",code="404",route=""} 1
outboard_gateway_requests_total{app="shop",code="405",route=""} 1
outboard_gateway_requests_total{app="shop",code="413",route="/{$}"} 1
`
	if err := metricstest.Compare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
	if n, err := metricstest.Count(registry, "outboard_gateway_request_seconds"); n != 3 || err != nil {
		t.Errorf("histograms: got %d (%v), want 3", n, err)
	}
	if err := g.SetApps(nil); err != nil {
		t.Fatal(err)
	}
	if n, _ := metricstest.Count(registry, name); n != 0 {
		t.Errorf("%d numbers of an app that is gone", n)
	}
}

func TestSetApps(t *testing.T) {
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) { return text(c.Function), nil })
	g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("first")}))
	route := func(r gateway.Route) gateway.App { return shop(r) }
	for name, c := range map[string]struct {
		apps []gateway.App
		want string
	}{
		"name":        {[]gateway.App{{Name: "a/b"}}, `check app: name "a/b": want letters, digits, -, _ and dots`},
		"twice":       {[]gateway.App{{Name: "a"}, {Name: "a"}}, "check app a: there are two apps of this name"},
		"no target":   {[]gateway.App{route(gateway.Route{Path: "/"})}, "check app shop: route /: it has neither a function nor a workflow: name one"},
		"two targets": {[]gateway.App{route(gateway.Route{Path: "/", Target: gateway.Target{Function: "f", Workflow: "w"}})}, `check app shop: route /: it has the function "f" and the workflow "w": leave one out`},
		"wait":        {[]gateway.App{route(gateway.Route{Path: "/", Target: gateway.Target{Function: "f", Wait: true}})}, "check app shop: route /: only a workflow is waited for: leave wait out"},
		"path":        {[]gateway.App{route(gateway.Route{Path: "x", Target: to("f")})}, `check app shop: route x: path "x": it must begin with a slash`},
		"pattern":     {[]gateway.App{route(gateway.Route{Path: "/{x", Target: to("f")})}, `check app shop: route /{x: parsing "/shop/{x": at offset 6: bad wildcard segment (must end with '}')`},
		"method":      {[]gateway.App{route(gateway.Route{Path: "/", Methods: []string{"get"}, Target: to("f")})}, `check app shop: route /: method "get": want one like GET`},
		"socket":      {[]gateway.App{route(gateway.Route{Path: "/", WebSocket: true, HTTP: true, Target: to("f")})}, "check app shop: route /: a WebSocket leads to a function, with no methods and no http"},
		"message":     {[]gateway.App{route(gateway.Route{Path: "/", HTTP: true, Target: gateway.Target{Workflow: "w"}})}, "check app shop: route /: a workflow takes no HTTP messages: leave http out"},
		"no bus":      {[]gateway.App{{Name: "a", Subjects: []gateway.SubjectTrigger{{Subject: "x", Target: to("f")}}}}, "check app a: subject x: this gateway has no bus"},
		"schedule":    {[]gateway.App{{Name: "a", Crons: []gateway.CronTrigger{{Schedule: "0 0 30 2 *", Target: to("f")}}}}, `check app a: cron 0 0 30 2 *: schedule "0 0 30 2 *": there is no such day`},
		"conflict": {
			[]gateway.App{shop(gateway.Route{Path: "/{a}/x", Target: to("f")}, gateway.Route{Path: "/y/{b}", Target: to("f")})},
			`check app shop: route /y/{b}: pattern "/shop/y/{b}" conflicts with pattern "/shop/{a}/x": /shop/y/{b} and /shop/{a}/x both match some paths, like "/shop/y/x". But neither is more specific than the other. /shop/y/{b} matches "/shop/y/b", but /shop/{a}/x doesn't. /shop/{a}/x matches "/shop/a/x", but /shop/y/{b} doesn't.`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := g.SetApps(c.apps)
			if outboard.KindOf(err) != outboard.Invalid || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if got := ask(g, get("/shop/")).text; got != "first" {
				t.Errorf("after a refusal %q serves", got)
			}
		})
	}
	if err := g.SetApps([]gateway.App{shop(gateway.Route{Path: "/", Target: to("second")})}); err != nil {
		t.Fatal(err)
	}
	if got := ask(g, get("/shop/")).text; got != "second" {
		t.Errorf("got %q, want the new version", got)
	}
}

func TestElsewhere(t *testing.T) {
	elsewhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "elsewhere "+r.URL.Path) })
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) { return text("here"), nil })
	g := newGateway(t, gateway.Options{Invoker: f, Elsewhere: elsewhere}, shop(gateway.Route{Path: "/", Target: to("f")}))
	if got := ask(g, get("/other/x")).text; got != "elsewhere /other/x" {
		t.Errorf("got %q", got)
	}
	if got := ask(g, get("/shop/nothing/")).text; got != "here" {
		t.Errorf("got %q", got)
	}
}

// TestStarted: the answer of a workflow without `wait` is the name of its execution.
func TestStarted(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return gateway.Answer{ID: "shop-1"}, nil })
	g := newGateway(t, gateway.Options{Invoker: f}, shop(
		gateway.Route{Path: "/start", Target: gateway.Target{Workflow: "order"}}, gateway.Route{Path: "/wait", Target: gateway.Target{Workflow: "order", Wait: true}},
	))
	r := ask(g, post("/shop/start", "{}"))
	if r.StatusCode != http.StatusAccepted || r.text != `{"execution":"shop-1"}` || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %v", r)
	}
	if r := ask(g, post("/shop/wait", "{}")); r.StatusCode != http.StatusBadGateway {
		t.Errorf("without an output: got %v", r)
	}
	for r := range g.Logs(gateway.Filter{App: "shop"}) {
		if r.Execution != "shop-1" || r.Call != "" {
			t.Errorf("got %+v", r)
		}
	}
}

// TestReleased: an answer is given back once, after it was sent.
func TestReleased(t *testing.T) {
	for name, answer := range map[string]gateway.Answer{
		"plain": {Body: []byte("hello")}, "message": {Body: []byte("HTTP/1.1 200 OK\r\n\r\nhello"), Message: true}, "wrong": {Body: []byte("HT"), Message: true},
	} {
		t.Run(name, func(t *testing.T) {
			released := 0
			mine := append([]byte(nil), answer.Body...)
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
				return gateway.Answer{Body: mine, Message: answer.Message, Stdout: mine, Release: func() { released++; clear(mine) }}, nil
			})
			g := newGateway(t, gateway.Options{Invoker: f}, shop(gateway.Route{Path: "/", Target: to("f")}))
			got := ask(g, get("/shop/")).text
			if released != 1 {
				t.Errorf("released %d times", released)
			}
			if name != "wrong" && got != "hello" {
				t.Errorf("got %q", got)
			}
			for r := range g.Logs(gateway.Filter{App: "shop"}) {
				if !bytes.Equal(r.Stdout, answer.Body) {
					t.Errorf("the log has %q, which was given back", r.Stdout)
				}
			}
		})
	}
}
