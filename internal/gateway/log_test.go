package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/quota"
)

func targets(g *gateway.Gateway, f gateway.Filter) (names []string) {
	for r := range g.Logs(f) {
		names = append(names, r.Target)
	}
	return names
}

func TestLogs(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })
	g := newGateway(t, gateway.Options{Invoker: f, LogSize: 4}, shop(), gateway.App{Name: "other"})
	for n := range 7 {
		if _, err := g.Invoke(t.Context(), gateway.Call{App: "shop", Function: fmt.Sprint("f", n%2), Trigger: gateway.Invoke}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		filter gateway.Filter
		want   []string
	}{
		"all":     {gateway.Filter{App: "shop"}, []string{"f1", "f0", "f1", "f0"}},
		"one":     {gateway.Filter{App: "shop", Target: "f1"}, []string{"f1", "f1"}},
		"last":    {gateway.Filter{App: "shop", Last: 3}, []string{"f0", "f1", "f0"}},
		"none":    {gateway.Filter{App: "shop", Last: -1}, nil},
		"other":   {gateway.Filter{App: "other"}, nil},
		"unknown": {gateway.Filter{App: "unknown"}, nil},
	} {
		if diff := cmp.Diff(targets(g, c.filter), c.want); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text("x"), nil })
		g := newGateway(t, gateway.Options{Invoker: f, LogSize: 3}, shop())
		call := func(name string) { _, _ = g.Invoke(t.Context(), gateway.Call{App: "shop", Function: name}) }
		call("first")
		ctx, cancel := context.WithCancel(t.Context())
		seen, pause := &notes{}, make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for r := range g.Follow(ctx, gateway.Filter{App: "shop"}) {
				seen.add("%s%d", r.Target, r.Lost)
				<-pause
			}
		}()
		synctest.Wait()
		for n := range 5 { // it takes none of them meanwhile
			call(fmt.Sprint("f", n))
		}
		close(pause)
		synctest.Wait()
		call("last")
		synctest.Wait()
		if diff := cmp.Diff(seen.take(), []string{"first0", "2", "f20", "f30", "f40", "last0"}); diff != "" {
			t.Error(diff)
		}
		cancel()
		<-ended
		time.AfterFunc(time.Second, func() { _ = g.SetApps(nil) })
		for range g.Follow(t.Context(), gateway.Filter{App: "shop", Last: -1}) { // it ends with the app
			t.Error("a record of nothing")
		}
	})
}

func TestLines(t *testing.T) {
	begin := time.Date(2026, 11, 20, 16, 14, 30, 0, time.UTC)
	r := gateway.Record{
		App: "shop", Target: "cart", Call: "c1", Trigger: gateway.HTTP, Route: "GET /", Begin: begin, Took: 1500 * time.Microsecond, Status: 500,
		Err: errors.New("trap"), Fuel: 7, Stdout: []byte("one\r\ntwo\x1b[31m"), Stderr: []byte("three\n"), Cut: 9,
		Trace: oteltrace.TraceID{1, 2, 3},
	}
	var lines, texts []string
	for _, l := range r.Lines() {
		lines = append(lines, l.String())
		texts = append(texts, string(l.JSON()))
	}
	want := []string{
		"2026-11-20 16:14:30.000 shop/cart stdout: one", "2026-11-20 16:14:30.000 shop/cart stdout: two\uFFFD[31m",
		"2026-11-20 16:14:30.000 shop/cart stderr: three",
		"2026-11-20 16:14:30.001 shop/cart call: failed: trap (9 bytes of output left out), http GET /, 1.5ms, status 500",
	}
	if diff := cmp.Diff(lines, want); diff != "" {
		t.Error(diff)
	}
	var last map[string]any
	if err := json.Unmarshal([]byte(texts[3]), &last); err != nil {
		t.Fatal(err)
	}
	wantJSON := map[string]any{
		"time": "2026-11-20T16:14:30.0015Z", "app": "shop", "function": "cart", "call": "c1", "trace": "01020300000000000000000000000000",
		"stream": "call", "text": "failed: trap (9 bytes of output left out)", "trigger": "http", "route": "GET /", "kind": "other",
		"status": 500.0, "took": 1500000.0, "fuel": 7.0,
	}
	if diff := cmp.Diff(last, wantJSON); diff != "" {
		t.Error(diff)
	}
	lost := gateway.Record{Lost: 3}
	if got := lost.Lines()[0].Text; got != "3 calls were lost: they came faster than they were read" {
		t.Errorf("got %q", got)
	}
}

// TestOutputBounded: a function that writes without end does not fill the logs.
func TestOutputBounded(t *testing.T) {
	much := []byte(strings.Repeat("x", gateway.MaxOutput+10))
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: []byte("x"), Stdout: much, Stderr: much[:5]}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, shop())
	if _, err := g.Invoke(t.Context(), gateway.Call{App: "shop", Function: "f"}); err != nil {
		t.Fatal(err)
	}
	for r := range g.Logs(gateway.Filter{App: "shop"}) {
		if len(r.Stdout) != gateway.MaxOutput || cap(r.Stdout) > 2*gateway.MaxOutput || r.Cut != 10 || string(r.Stderr) != "xxxxx" {
			t.Errorf("%d bytes are kept, %d are cut", len(r.Stdout), r.Cut)
		}
	}
}

// TestOutputOfATenantIsBounded: what all apps of a tenant printed takes bounded memory. An app
// loses its own oldest output first, and no records.
func TestOutputOfATenantIsBounded(t *testing.T) {
	f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
		return gateway.Answer{Body: []byte("x"), Stdout: []byte(strings.Repeat("x", 1000))}, nil
	})
	limit := quota.NewBudget(quota.Logs, 3500)
	g := newGateway(t, gateway.Options{Invoker: f, Output: limit, LogSize: 8}, shop(), gateway.App{Name: "other"})
	call := func(app string) {
		t.Helper()
		if _, err := g.Invoke(t.Context(), gateway.Call{App: app, Function: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(app string) (records, output int) {
		for r := range g.Logs(gateway.Filter{App: app}) {
			records++
			output += len(r.Stdout)
			if len(r.Stdout)+r.Cut != 1000 {
				t.Errorf("a record has %d bytes and says that %d are cut, of 1000", len(r.Stdout), r.Cut)
			}
		}
		return records, output
	}
	call("other")
	for range 20 {
		call("shop")
	}
	if records, output := kept("shop"); records != 8 || output != 2000 {
		t.Errorf("%d records with %d bytes, want 8 with 2000", records, output)
	}
	if records, output := kept("other"); records != 1 || output != 1000 {
		t.Errorf("the other app has %d records with %d bytes, want 1 with 1000", records, output)
	}
	if held := limit.Held(); held != 3000 {
		t.Errorf("%d bytes are counted, want 3000", held)
	}
	if err := g.SetApps(nil); err != nil {
		t.Fatal(err)
	}
	if held := limit.Held(); held != 0 {
		t.Errorf("%d bytes are counted for apps that are gone", held)
	}
}

// TestTraces: a request's trace goes on in the call, in the message, in the log and in
// a span.
func TestTraces(t *testing.T) {
	const trace1, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	spans := tracetest.NewInMemoryExporter()
	for name, tracer := range map[string]oteltrace.TracerProvider{"spans": trace.NewTracerProvider(trace.WithSyncer(spans)), "none": nil} {
		t.Run(name, func(t *testing.T) {
			var inContext oteltrace.SpanContext
			var message string
			f := invoke(func(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
				inContext, message = oteltrace.SpanContextFromContext(ctx), string(c.Body)
				return gateway.Answer{}, errors.New("no")
			})
			g := newGateway(t, gateway.Options{Invoker: f, Tracer: tracer}, shop(gateway.Route{Path: "/", Target: to("f"), HTTP: true}))
			r := get("/shop/")
			r.Header.Set("Traceparent", "00-"+trace1+"-"+parent+"-01")
			r.Header.Set("Tracestate", "a=b")
			answer := ask(g, r)
			p := wantProblem(t, answer)
			if p.Trace != trace1 || inContext.TraceID().String() != trace1 || !inContext.IsSampled() || inContext.TraceState().String() != "a=b" {
				t.Errorf("got %s, in the context %v", p.Trace, inContext)
			}
			if !strings.Contains(message, "Traceparent: 00-"+trace1+"-"+inContext.SpanID().String()+"-01\r\n") {
				t.Errorf("got the message %q", message)
			}
			if (inContext.SpanID().String() == parent) != (tracer == nil) {
				t.Errorf("the parent is %v", inContext.SpanID())
			}
			for r := range g.Logs(gateway.Filter{App: "shop"}) {
				if r.Trace.String() != trace1 {
					t.Errorf("the log has %v", r.Trace)
				}
			}
		})
	}
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "shop /" || got[0].Parent.SpanID().String() != parent || got[0].Status.Description != "no" {
		t.Errorf("got the spans %+v", got)
	}
}

func TestTraceparent(t *testing.T) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for s, want := range map[string]bool{
		valid: true, "cc" + valid[2:] + "-what": true, "": false, valid[:54]: false, valid + "-x": false, "ff" + valid[2:]: false,
		"cc" + valid[2:] + "x": false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false,
		"0x" + valid[2:]: false,
	} {
		if got, ok := gateway.ParseTraceparent(s); ok != want || ok && got != valid {
			t.Errorf("%q: got %q, %v", s, got, ok)
		}
	}
}

// FuzzTraceparent: what is read and written again is the same.
func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-x")
	f.Fuzz(func(t *testing.T, s string) {
		once, ok := gateway.ParseTraceparent(s)
		if !ok {
			return
		}
		if twice, ok := gateway.ParseTraceparent(once); !ok || twice != once {
			t.Errorf("%q: %q, then %q", s, once, twice)
		}
	})
}
