package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

const inner = "document: {dsl: 1.0.0, namespace: test, name: inner, version: 1.0.0}\n"

// runOther is a workflow that runs the one named inner.
func runOther(more string) string {
	return `do: [{a: {run: {workflow: {namespace: test, name: inner` + more + `}}}}]`
}

func (w *world) deployInner(text string) {
	w.t.Helper()
	d, err := dsl.Parse("inner.yaml", []byte(inner+text))
	if err != nil {
		w.t.Fatal(err)
	}
	w.pool.Deploy("app", "inner", d)
}

func TestRunWorkflow(t *testing.T) {
	for name, c := range map[string]struct{ inner, outer, want string }{
		"output":       {`do: [{b: {call: f, with: {body: "${ {x: .n} }"}}}]`, runOther(`, input: {n: 7}`), `{"x":7}`},
		"own input":    {`do: [{b: {set: {got: "${ . }"}}}]`, runOther(``), `{"got":1}`},
		"large output": {`do: [{b: {call: big}}]`, `do: [{a: {run: {workflow: {namespace: test, name: inner}}}}, {c: {call: size}}]`, `100000`},
		"not awaited":  {`do: [{b: {wait: PT1H}}]`, `do: [{a: {run: {await: false, workflow: {namespace: test, name: inner}}}}]`, `1`},
		"waits":        {`do: [{b: {wait: PT1H}}]`, runOther(`, version: latest`), `1`},
		"error":        {`do: [{b: {raise: {error: {type: mine, status: 418}}}}]`, `do: [{t: {try: [{a: {run: {workflow: {namespace: test, name: inner}}}}], catch: {errors: {with: {status: 418}}, do: [{c: {set: {caught: "${ $error.instance }"}}}]}}}]`, `{"caught":"/do/0/t/try/0/a"}`},
		"absent":       {`do: [{b: {wait: PT1H}}]`, `do: [{t: {try: [{a: {run: {workflow: {namespace: test, name: other}}}}], catch: {errors: {with: {status: 404}}, do: [{c: {set: {caught: true}}}]}}}]`, `{"caught":true}`},
		"itself":       {runOther(``), `do: [{t: {try: [{a: {run: {workflow: {namespace: test, name: inner}}}}], catch: {errors: {with: {status: 508}}, do: [{c: {set: {caught: true}}}]}}}]`, `{"caught":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
					switch c.Function {
					case "big":
						at := n.Arena(c.Execution, make([]byte, 100_000))
						return engine.Outcome{At: &at, Type: "application/octet-stream"}, nil
					case "size":
						return engine.Outcome{Body: []byte("100000")}, nil
					}
					return echo(n, c)
				})
				w.deployInner(c.inner)
				got := w.run(c.outer, `1`)
				if got.Status != core.Completed || string(got.Output) != c.want {
					t.Errorf("got %s %s (%v), want %s", got.Status, got.Output, got.Error, c.want)
				}
			})
		})
	}
}

// Stopping the task cancels the execution that it runs. With one slot for running executions both advance.
func TestRunWorkflowStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo, func(o *engine.Options) { o.Running = 1 })
		w.deployInner(`do: [{b: {wait: PT10H}}]`)
		got := w.run(`do: [{a: {timeout: {after: PT1H}, run: {workflow: {namespace: test, name: inner}}}}]`, ``)
		if got.Status != core.Faulted || got.Error.Status != 408 {
			t.Errorf("got %s %v", got.Status, got.Error)
		}
		synctest.Wait()
		all, err := w.engine.List(t.Context(), engine.Filter{})
		if err != nil || len(all) != 2 {
			t.Fatalf("%d executions, %v", len(all), err)
		}
		for _, e := range all {
			if strings.HasPrefix(e.ID.Name(), "sub-") && e.Status != core.Abandoned {
				t.Errorf("%s is %s", e.ID, e.Status)
			}
		}
	})
}

// A node that takes the execution over waits for the execution that was started before.
func TestRunWorkflowSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.deployInner(`do: [{b: {wait: PT1H}}, {c: {set: {done: true}}}]`)
		id := w.start(runOther(``), ``)
		time.Sleep(time.Minute)
		w.node.Kill()
		other := w.on(w.pool.Node("island"), echo)
		got, err := other.Wait(t.Context(), id)
		if err != nil || string(got.Output) != `{"done":true}` {
			t.Fatalf("got %s (%v), %v", got.Output, got.Error, err)
		}
		all, err := other.List(t.Context(), engine.Filter{})
		if err != nil || len(all) != 2 {
			t.Errorf("%d executions, %v", len(all), err)
		}
	})
}

// children returns the phases of the executions that workflows ran.
func (w *world) children(e *engine.Engine) []core.Status {
	w.t.Helper()
	synctest.Wait()
	all, err := e.List(w.t.Context(), engine.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []core.Status
	for _, x := range all {
		if strings.HasPrefix(x.ID.Name(), "sub-") {
			out = append(out, x.Status)
		}
	}
	return out
}

// An execution that is cancelled on another node than its own takes those that it runs with it.
func TestCancelElsewhereStopsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.deployInner(`do: [{b: {wait: PT10H}}]`)
		id := w.start(runOther(``), ``)
		time.Sleep(time.Minute)
		other := w.on(w.pool.Node("island"), echo)
		if err := other.Cancel(t.Context(), id, "enough"); err != nil {
			t.Fatal(err)
		}
		if got := w.children(other); !slices.Equal(got, []core.Status{core.Abandoned}) {
			t.Errorf("the executions that it ran are %v", got)
		}
	})
}

// A node that dies once a task has timed out leaves the execution that the task ran to the next node.
func TestTakeoverStopsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, pool: enginetest.New()}
		node := w.pool.Node("harbour")
		began := time.Now()
		node.Fault = func(n *enginetest.Node, op string, after bool) error {
			if op == "append" && after && time.Since(began) >= time.Hour {
				n.Kill() // the end of the task is recorded, and nothing that follows from it
			}
			return nil
		}
		w.engine = w.on(node, echo)
		w.deployInner(`do: [{b: {wait: PT10H}}]`)
		id := w.start(`do: [{t: {try: [{a: {timeout: {after: PT1H}, run: {workflow: {namespace: test, name: inner}}}}], catch: {do: [{c: {wait: PT20H}}]}}}]`, ``)
		other := w.on(w.pool.Node("island"), echo)
		time.Sleep(2 * time.Hour)
		if got := w.children(other); !slices.Equal(got, []core.Status{core.Abandoned}) {
			t.Errorf("the executions that it ran are %v", got)
		}
		if got, err := other.Wait(t.Context(), id); err != nil || got.Status != core.Completed {
			t.Errorf("got %v (%v), %v", got.Status, got.Error, err)
		}
	})
}

// An execution that continues from its log, since an acknowledgement was lost, keeps those that it
// runs.
func TestRestartKeepsChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, pool: enginetest.New()}
		node := w.pool.Node("harbour")
		var lost atomic.Int32 // 1: the next acknowledgement is lost, 2: so is the next read
		node.Fault = func(_ *enginetest.Node, op string, after bool) error {
			if op == "append" && after && lost.CompareAndSwap(1, 2) || op == "read" && !after && lost.CompareAndSwap(2, 0) {
				return errors.New("no response")
			}
			return nil
		}
		w.engine = w.on(node, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			time.Sleep(time.Minute)
			lost.Store(1)
			return echo(n, c)
		})
		w.deployInner(`do: [{b: {wait: PT1H}}, {c: {set: {done: true}}}]`)
		got := w.run(`do: [{f: {fork: {branches: [{a: {run: {workflow: {namespace: test, name: inner}}}}, {b: {call: f}}]}}}]`, `1`)
		if string(got.Output) != `[{"done":true},1]` {
			t.Errorf("got %s %s (%v)", got.Status, got.Output, got.Error)
		}
	})
}

// The timeout of a workflow does not bound an execution that it has started and does not wait for.
func TestDetachedChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.deployInner(`do: [{b: {wait: PT1H}}]`)
		got := w.run("timeout: {after: PT1M}\ndo: [{a: {run: {await: false, workflow: {namespace: test, name: inner}}}}]", `1`)
		if got.Status != core.Completed {
			t.Fatalf("got %s (%v)", got.Status, got.Error)
		}
		time.Sleep(2 * time.Hour)
		if got := w.children(w.engine); !slices.Equal(got, []core.Status{core.Completed}) {
			t.Errorf("the execution is %v", got)
		}
	})
}

// Executions that fill the engine while each waits for another one that it runs are not stuck.
func TestRunWorkflowWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo, func(o *engine.Options) { o.Executions = 3 })
		w.deployInner(`do: [{a: {switch: [{deeper: {when: ". > 0", then: continue}}, {last: {then: end}}]}}, {b: {run: {workflow: {namespace: test, name: inner, input: "${ . - 1 }"}}}}]`)
		var ids []engine.ID
		w.pool.Deploy("app", "flow", parse(t, `do: [{w: {wait: PT1M}}, {a: {run: {workflow: {namespace: test, name: inner, input: 5}}}}]`))
		for range 3 {
			id, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow"}); outboard.KindOf(err) != outboard.Busy {
			t.Errorf("one too many: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, id := range ids {
			if got, err := w.engine.Wait(ctx, id); err != nil || string(got.Output) != "0" {
				t.Errorf("got %s %v, %v", got.Output, got.Error, err)
			}
		}
	})
}

// serviceFunc is a service in Go.
type serviceFunc func(context.Context, engine.ServiceCall) (engine.Outcome, error)

func (f serviceFunc) CallService(ctx context.Context, c engine.ServiceCall) (engine.Outcome, error) {
	return f(ctx, c)
}

// A request is sent once, unless nothing was sent; retries are the workflow's, and recorded.
func TestCallService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []engine.ServiceCall
		errs := []error{outboard.Errorf(outboard.Busy, "", "later"), outboard.Errorf(outboard.Unreachable, "", "gone"), nil}
		w := open(t, echo, func(o *engine.Options) {
			o.Services = serviceFunc(func(_ context.Context, c engine.ServiceCall) (engine.Outcome, error) {
				got = append(got, c)
				return engine.Outcome{Body: []byte(`{"ok": true}`)}, errs[len(got)-1]
			})
		})
		result := w.run(`do: [{t: {try: [{a: {timeout: {after: PT9S}, call: http, with: {method: get, endpoint: "https://a.b/{id}"}, output: {as: .ok}}}], catch: {retry: {delay: PT1S}}}}]`, `{"id": 7}`)
		if string(result.Output) != "true" {
			t.Fatalf("got %s %v", result.Output, result.Error)
		}
		if len(got) != 3 || got[0].Path != got[1].Path || got[1].Path == got[2].Path || got[2].Key() == got[1].Key() {
			t.Errorf("calls: %+v", got)
		}
		if c := got[0]; c.With["endpoint"] != "https://a.b/7" || c.Timeout != 9*time.Second {
			t.Errorf("the call is %+v", c)
		}
		w.pool.Deploy("app", "flow", parse(t, `do: [{a: {call: http, with: {method: get, endpoint: "https://a.b/{id}"}}}]`))
		missing := w.run(`do: [{a: {call: http, with: {method: get, endpoint: "https://a.b/{id}"}}}]`, `{"id": ".."}`)
		if missing.Status != core.Faulted || missing.Error.Type != dsl.ErrorExpression {
			t.Errorf("a path of two dots: %+v", missing.Error)
		}
	})
}
