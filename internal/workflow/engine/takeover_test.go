package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

// kinds are the records of an execution.
func (w *world) kinds(id engine.ID) []string {
	w.t.Helper()
	var out []string
	for _, r := range w.pool.Records("test/" + string(id)) {
		var e core.Event
		if err := json.Unmarshal(r.Data, &e); err != nil {
			w.t.Fatal(err)
		}
		switch {
		case e.Started != nil:
			out = append(out, "started on "+e.Started.Node)
		case e.TakenOver != nil:
			out = append(out, "taken by "+e.TakenOver.Node)
		case e.Step != nil:
			out = append(out, "step "+e.Step.Path)
		case e.Fired != nil:
			out = append(out, "fired "+e.Fired.Path)
		case e.Finished != nil:
			out = append(out, "finished "+string(e.Finished.Status))
		default:
			out = append(out, "something else")
		}
	}
	return out
}

// A node that was only thought to be dead finds at its next record that another
// one has the execution, and stops.
func TestTwoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		slow := func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			time.Sleep(time.Minute)
			return echo(n, c)
		}
		w := open(t, slow, func(o *engine.Options) { o.Registerer = registry })
		id := w.start(`do: [{a: {call: f}}, {b: {call: f}}]`, `7`)
		time.Sleep(time.Second)

		// The other node believes that the execution has no owner.
		quay := w.pool.Node("quay")
		opts := quay.Options(enginetest.Functions{F: func(_ context.Context, c engine.FunctionCall) (engine.Outcome, error) { return echo(quay, c) }})
		opts.Claims = bold{id}
		other, err := engine.Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := other.Wait(t.Context(), id)
		if err != nil || got.Status != core.Completed {
			t.Fatal(got, err)
		}
		if result, err := w.engine.Wait(t.Context(), id); err != nil || result.Status != core.Completed {
			t.Error(result, err)
		}
		want := []string{"started on harbour", "taken by quay", "step a", "step b", "finished completed"}
		if diff := cmp.Diff(w.kinds(id), want); diff != "" {
			t.Errorf("records (-got +want):\n%s", diff)
		}
		time.Sleep(2 * time.Minute)
		if n := metric(t, registry, "outboard_workflow_lost_total"); n != 1 {
			t.Errorf("%v executions were lost, want 1", n)
		}
		_ = other.Close()
		w.close()
	})
}

// bold claims whatever it is asked for, and one execution without being asked.
type bold struct{ id engine.ID }

func (bold) Claim(context.Context, engine.ID) error    { return nil }
func (bold) ClaimNew(context.Context, engine.ID) error { return nil }

func (bold) Release(context.Context, engine.ID) error { return nil }

func (b bold) Orphans(ctx context.Context, f func(engine.ID)) error {
	f(b.id)
	<-ctx.Done()
	return ctx.Err()
}

// metric is a counter's or gauge's value, all labels together.
func metric(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Timers and listeners go on where a node died, at the times at which they were due.
func TestTakeOverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		began := time.Now()
		id := w.start(`do: [{a: {call: f}}, {b: {wait: PT1H}}, {c: {listen: {to: {one: {with: {type: go}}}}}}]`, `7`)
		time.Sleep(30 * time.Minute)
		w.node.Kill()
		w.close()
		quay := w.pool.Node("quay")
		w.engine = w.on(quay, echo)
		time.Sleep(31 * time.Minute)
		w.pool.Deploy("app", "teller", parse(t, `do: [{tell: {emit: {event: {with: {source: s, type: go, data: now}}}}}]`))
		if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "teller"}); err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || string(got.Output) != `["now"]` {
			t.Fatal(got, err)
		}
		x, err := w.engine.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if ended := x.Steps[1].Ended.Sub(began); ended != time.Hour {
			t.Errorf("the wait ended after %s, want an hour", ended)
		}
		w.close()
	})
}

// An execution waits as long as its workflow says after a node whose clock was ahead.
func TestTakeOverFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		began := time.Now()
		id := w.start(`do: [{a: {wait: PT1S}}, {b: {wait: PT1S}}, {c: {try: [{d: {call: f}}], catch: {retry: {delay: PT1S, limit: {duration: PT3S}}}}}]`, `7`)
		w.node.Kill()
		w.close()
		quay := w.pool.Node("quay")
		key := "test/" + string(id)
		taken, err := json.Marshal(core.Event{At: began.Add(time.Hour), By: "tide", TakenOver: &core.TakenOver{Node: "tide"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := quay.Append(t.Context(), key, w.pool.Records(key)[0].Seq, taken); err != nil {
			t.Fatal(err)
		}
		refuse := func(*enginetest.Node, engine.FunctionCall) (engine.Outcome, error) {
			return engine.Outcome{}, outboard.Errorf(outboard.Other, "call", "no")
		}
		w.engine = w.on(quay, refuse)
		if _, err := w.engine.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 4*time.Second || took > 10*time.Second {
			t.Errorf("it ended after %s, want one second, two retries within three, and pauses", took)
		}
		w.close()
	})
}

// An execution whose workflow is gone ends, and says why.
func TestWorkflowIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		id := w.start(`do: [{b: {wait: PT1H}}]`, `7`)
		w.node.Kill()
		w.close()
		w.pool.Undeploy("app", "flow")
		w.engine = w.on(w.pool.Node("quay"), echo)
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Status != core.Faulted || got.Error.Status != 410 {
			t.Error(got, err)
		}
		synctest.Wait()
		if n := w.pool.Claims(); n != 0 {
			t.Errorf("%d claims are left", n)
		}
		w.close()
	})
}

// An execution whose workflow was changed under its feet ends without doing
// anything again.
func TestWorkflowWasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		id := w.start(`do: [{a: {call: f}}, {b: {wait: PT1H}}]`, `7`)
		time.Sleep(time.Minute)
		w.node.Kill()
		w.close()
		w.pool.Deploy("app", "flow", parse(t, `do: [{other: {call: f}}, {b: {wait: PT1H}}]`))
		w.engine = w.on(w.pool.Node("quay"), func(_ *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			t.Errorf("%s is called", c.Path)
			return engine.Outcome{}, nil
		})
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Status != core.Faulted || got.Error.Status != 409 {
			t.Error(got, err)
		}
		w.close()
	})
}

// A log that can't be understood gets an end, once.
func TestCorruptLog(t *testing.T) {
	for name, garbage := range map[string]string{"no JSON": `x`, "two starts": `{"started":{"version":1,"workflow":"flow"}}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, echo)
				id := w.start(`do: [{a: {wait: PT1H}}]`, `7`)
				w.node.Kill()
				w.close()
				quay := w.pool.Node("quay")
				key := "test/" + string(id)
				if _, err := quay.Append(t.Context(), key, w.pool.Records(key)[0].Seq, []byte(garbage)); err != nil {
					t.Fatal(err)
				}
				w.engine = w.on(quay, echo)
				time.Sleep(time.Hour)
				records := w.pool.Records(key)
				if last := string(records[len(records)-1].Data); !strings.Contains(last, `"finished":{"status":"faulted"`) || len(records) > 4 {
					t.Errorf("%d records, the last one is %s", len(records), last)
				}
				if n := w.pool.Claims(); n != 0 {
					t.Errorf("%d claims are left", n)
				}
				w.close()
			})
		})
	}
}

// Values are brought to the node that takes over.
func TestTakeOverValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			if c.Path == "b" {
				time.Sleep(time.Hour)
			}
			at := n.Arena(c.Execution, []byte("large"))
			return engine.Outcome{At: &at, Type: "text/x"}, nil
		})
		id := w.start(`do: [{a: {call: f}}, {b: {call: f, with: {meta: {x: 1}}}}]`, ``)
		time.Sleep(time.Minute)
		w.node.Kill()
		w.close()
		w.engine = w.on(w.pool.Node("quay"), echo)
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Value == nil || got.Value.Size != 5 {
			t.Errorf("got %+v, %v", got, err)
		}
		want := []string{"started on harbour", "step a", "taken by quay", "step b", "finished completed"}
		if diff := cmp.Diff(w.kinds(id), want); diff != "" {
			t.Errorf("records (-got +want):\n%s", diff)
		}
		w.close()
	})
}

// One append for all that has come together.
func TestAppendsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		appends := 0
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			time.Sleep(time.Second)
			return echo(n, c)
		})
		w.node.Fault = func(_ *enginetest.Node, op string, after bool) error {
			if op == "append" && !after {
				appends++
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		text := `do: [{a: {fork: {branches: [{b0: {call: f}}` + strings.Repeat(`, {B: {call: f}}`, 9) + `]}}}]`
		for i := range 9 {
			text = strings.Replace(text, "{B:", "{b"+string(rune('1'+i))+":", 1)
		}
		w.run(text, `1`)
		// The start; one end, while whose record is written the others come; those, and
		// the end of the execution with them.
		if appends > 3 {
			t.Errorf("%d appends, want 3 at most", appends)
		}
		w.close()
	})
}

func TestSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	w := open(t, echo, func(o *engine.Options) { o.Tracer = provider.Tracer("test") })
	w.pool.Deploy("app", "flow", parse(t, `do: [{a: {call: f}}, {b: {raise: {error: {type: x, status: 500}}}}]`))
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	id, err := w.engine.Start(ctx, engine.StartRequest{App: "app", Workflow: "flow"})
	if err != nil {
		t.Fatal(err)
	}
	root.End()
	if _, err := w.engine.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.close()
	spans := map[string]tracetest.SpanStub{}
	for _, s := range exporter.GetSpans() {
		spans[s.Name] = s
	}
	flow, step := spans["workflow under-test"], spans["step a"]
	if flow.Parent.SpanID() != spans["root"].SpanContext.SpanID() || step.Parent.SpanID() != flow.SpanContext.SpanID() {
		t.Errorf("the spans have other parents: %+v", spans)
	}
	if flow.Status.Code != codes.Error || step.Status.Code != codes.Unset {
		t.Errorf("status of the workflow %v, of the step %v", flow.Status, step.Status)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := open(t, func(_ *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
		return engine.Outcome{Body: c.Body, Run: engine.Run{Copied: 5, Pointer: 3}}, nil
	}, func(o *engine.Options) { o.Registerer = registry })
	w.run(`do: [{a: {call: f}}, {b: {call: f}}]`, `1`)
	for name, want := range map[string]float64{
		"outboard_workflow_started_total": 1, "outboard_workflow_finished_total": 1, "outboard_workflow_steps_total": 2,
		"outboard_workflow_bytes_total": 16, "outboard_workflow_held": 0,
	} {
		if got := metric(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	w.close()
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("%d families are left after Close, %v", len(families), err)
	}
}

func TestOptions(t *testing.T) {
	n := enginetest.New().Node("harbour")
	for name, change := range map[string]func(*engine.Options){
		"no tenant": func(o *engine.Options) { o.Tenant = "" },
		"no node":   func(o *engine.Options) { o.Node = "" },
		"no log":    func(o *engine.Options) { o.Log = nil },
		"negative":  func(o *engine.Options) { o.Running = -1 },
	} {
		opts := n.Options(enginetest.Functions{})
		change(&opts)
		if _, err := engine.Open(t.Context(), opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	e, err := engine.Open(t.Context(), n.Options(enginetest.Functions{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []engine.StartRequest{{App: "a/b", Workflow: "x"}, {App: "a", Workflow: "x", Name: "../x"}, {App: "a", Workflow: "x"}} {
		if _, err := e.Start(t.Context(), req); err == nil {
			t.Errorf("%+v: no error", req)
		}
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Executions that are taken over at once are one line of the log.
func TestTakenIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		for range 5 {
			w.start(`do: [{a: {wait: PT1H}}]`, `7`)
		}
		time.Sleep(time.Second)
		w.node.Kill()
		w.close()
		var log bytes.Buffer
		w.engine = w.on(w.pool.Node("quay"), echo, func(o *engine.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(time.Minute)
		w.close()
		if got := log.String(); strings.Count(got, "took executions over") != 1 || !strings.Contains(got, "executions=5") {
			t.Errorf("the log says:\n%s", got)
		}
	})
}
