package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/outboard-run/outboard/bench/function/hello"
	"github.com/outboard-run/outboard/bench/paired"
)

const helloApp = `app: hello
functions:
  orders: {module: hello.wasm, http: true}
  people: {module: greet.wasm, http: true}
  echo: {module: pass.wasm}
routes:
  - {path: "/orders/{id}", methods: [POST], function: orders}
  - {path: "/people/{name}", methods: [POST], function: people}
  - {path: /echo, methods: [POST], function: echo}
`

const connections = 8

// http measures requests a second to functions with fresh state for each request, through the
// gateway, beside the same handlers in net/http's server.
func (b *bench) http(ctx context.Context) error {
	a, err := b.app(ctx, helloApp, map[string]string{"hello.wasm": helloGuest, "greet.wasm": greetGuest, "pass.wasm": passGuest})
	if err != nil {
		return err
	}
	return b.withStage(ctx, a, func(s *testNode) error {
		native, err := serveLoopback(ctx, nativeHandlers())
		if err != nil {
			return err
		}
		return errors.Join(b.measureHTTP(ctx, s, native), b.withoutConnections(ctx, s), native.close())
	})
}

// app returns an app of a manifest with its guests.
func (b *bench) app(ctx context.Context, text string, modules map[string]string) (app, error) {
	a := app{text: text, files: map[string][]byte{}}
	for name, pkg := range modules {
		code, err := b.guests.bytes(ctx, pkg)
		if err != nil {
			return a, err
		}
		a.files[name] = code
	}
	return a, nil
}

// nativeHandlers returns native handlers for the routes of the app.
func nativeHandlers() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hello/orders/{id}", hello.Handler)
	mux.HandleFunc("POST /hello/people/{name}", hello.Greet)
	mux.HandleFunc("POST /hello/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = w.Write(body) // the client hung up
		}
	})
	return mux
}

// The reasons of rows that may miss their goals.
const (
	slowHandler = "What the handler does runs as WebAssembly: to read the request's head and its JSON, and to write both for the answer, takes some 50,000 instructions, " +
		"and they write to 26 pages of memory, which are written back: 28 us in a loop, where native code takes 2. What gateway, fresh state and function add beside that is in the row of the echo."
	slowEcho = "A native handler leaves next to nothing to save: 0.9 of its rate is a tenth of what both ends of a connection take for a request. The gateway's own server takes less for it " +
		"than net/http's does, which pays for call and reset: where processor time says so and the rate does not, others used the machine."
)

func (b *bench) measureHTTP(ctx context.Context, s *testNode, native *loopbackServer) error {
	order := []byte(`{"course":"algebra","student":"s1","seats":2}`)
	receipt := []byte(`{"id":"17","course":"algebra","accepted":true,"left":38}` + "\n")
	for _, h := range []struct {
		name, path string
		body, want []byte
		open       func(context.Context, load) (caller, error)
		goal       paired.Goal
		reason     string
	}{
		{"http.Handler with JSON, 8 connections of net/http's client", "/hello/orders/17", order, receipt, newFull, paired.Goal{MinRatio: 0.9}, slowHandler},
		{"http.Handler with JSON, 8 connections of a client that costs next to nothing", "/hello/orders/17", order, receipt, newLean, paired.Goal{}, ""},
		{"the template of outboard new go, 8 connections of net/http's client", "/hello/people/bob", nil, []byte("hello bob\n"), newFull, paired.Goal{MinRatio: 0.7}, ""},
		{"the template of outboard new go, 8 connections of a client that costs next to nothing", "/hello/people/bob", nil, []byte("hello bob\n"), newLean, paired.Goal{}, ""},
		{"echo, 8 connections of net/http's client", "/hello/echo", order, order, newFull, paired.Goal{MinRatio: 0.9}, slowEcho},
		{"echo, 8 connections of a client that costs next to nothing", "/hello/echo", order, order, newLean, paired.Goal{}, ""},
	} {
		l := load{path: h.path, body: h.body, want: h.want, connections: connections, turn: b.Turn(time.Second, 200*time.Millisecond)}
		to := func(addr string) measurement {
			l.addr = addr
			return l.through(h.open)
		}
		all, err := b.turns(ctx, b.Rounds(9, 2), to(s.addr()), to(native.addr))
		if err != nil {
			return err
		}
		b.Row(paired.NewRow(h.name, "requests/s", "native net/http handler", all[0].values, all[1].values, h.goal).Because(h.reason))
		b.Row(paired.NewRow(h.name+": processor time of both ends", "us a request", "native net/http handler", all[0].timePerOperation(), all[1].timePerOperation(), paired.Goal{}))
	}
	return nil
}

// withoutConnections measures the duration of an echo within the process: the part of a request
// that does not depend on its size and client.
func (b *bench) withoutConnections(ctx context.Context, s *testNode) error {
	body := []byte(`{"course":"algebra","student":"s1","seats":2}`)
	within := func(h http.Handler) measurement {
		var m memory
		return perCall(b.Turn(300*time.Millisecond, 50*time.Millisecond), func() error {
			r, err := newRequest(ctx, http.MethodPost, "/hello/echo", body)
			if err != nil {
				return err
			}
			h.ServeHTTP(m.ready(), r)
			return expect(m.body, body)
		})
	}
	all, err := b.turns(ctx, b.Rounds(9, 3), within(s.tenant.Requests()), within(nativeHandlers()))
	if err != nil {
		return err
	}
	b.Row(paired.NewRow("echo without connections", "us", "native handler", all[0].values, all[1].values, paired.Goal{}))
	return nil
}
