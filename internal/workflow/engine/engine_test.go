package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

func parse(t testing.TB, text string) *dsl.Workflow {
	t.Helper()
	const document = "document: {dsl: 1.0.0, namespace: test, name: under-test, version: 1.0.0}\n"
	w, err := dsl.Parse("test.yaml", []byte(document+text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// world is one pool with one node and its engine.
type world struct {
	t      testing.TB
	pool   *enginetest.Pool
	node   *enginetest.Node
	engine *engine.Engine
}

func open(t testing.TB, f func(*enginetest.Node, engine.FunctionCall) (engine.Outcome, error), change ...func(*engine.Options)) *world {
	t.Helper()
	w := &world{t: t, pool: enginetest.New()}
	w.node = w.pool.Node("harbour")
	w.engine = w.on(w.node, f, change...)
	return w
}

func (w *world) on(n *enginetest.Node, f func(*enginetest.Node, engine.FunctionCall) (engine.Outcome, error), change ...func(*engine.Options)) *engine.Engine {
	w.t.Helper()
	functions := enginetest.Functions{
		F:       func(_ context.Context, c engine.FunctionCall) (engine.Outcome, error) { return f(n, c) },
		Effects: []string{"effect"},
	}
	opts := n.Options(functions)
	for _, c := range change {
		c(&opts)
	}
	e, err := engine.Open(w.t.Context(), opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = e.Close() })
	return e
}

func (w *world) run(text, input string) engine.Result {
	w.t.Helper()
	id := w.start(text, input)
	result, err := w.engine.Wait(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) start(text, input string) engine.ID {
	w.t.Helper()
	w.pool.Deploy("app", "flow", parse(w.t, text))
	id, err := w.engine.Start(w.t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Input: []byte(input)})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// echo answers with what it got.
func echo(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
	if c.At != nil {
		body, err := n.At(c.Execution, *c.At)
		return engine.Outcome{Body: body, Type: c.Type}, err
	}
	return engine.Outcome{Body: c.Body, Type: c.Type}, nil
}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct{ workflow, input, want string }{
		"chain":   {`do: [{a: {call: f, with: {body: "${ {x: .n} }"}}}, {b: {call: f}}]`, `{"n": 1}`, `{"x":1}`},
		"numbers": {`do: [{a: {call: f}}]`, `[12345678901234567890, 1.50]`, `[12345678901234567890,1.50]`},
		"fork": {
			`do: [{a: {fork: {branches: [{l: {call: f, with: {body: "${ 1 }"}}}, {r: {call: f, with: {body: "${ 2 }"}}}]}}}]`, ``, `[1,2]`,
		},
		"no reference": { // anyone may write data that looks like a reference to a value
			`do: [{a: {call: f, with: {body: "${ {a: ., b: [.]} }"}}}, {b: {call: f, with: {body: "${ .a }"}}}]`,
			`{"$value":{"step":"nope","size":3}}`, `{"$value":{"size":3,"step":"nope"}}`,
		},
		"nothing": {`do: [{a: {call: f}}]`, ``, `null`},
		"wait":    {`do: [{a: {wait: PT1H}}, {b: {call: f}}]`, `3`, `3`},
		"meta":    {`do: [{a: {call: meta, with: {meta: {a: "${ .n }", b: x}}}}]`, `{"n": 7}`, `{"a":"7","b":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
					if c.Function == "meta" {
						text, err := json.Marshal(c.Meta)
						return engine.Outcome{Body: text}, err
					}
					return echo(n, c)
				})
				got := w.run(c.workflow, c.input)
				if got.Status != core.Completed || string(got.Output) != c.want {
					t.Errorf("got %s %s (%v), want %s", got.Status, got.Output, got.Error, c.want)
				}
				w.close()
			})
		})
	}
}

// close closes the engine within the bubble of a test, and looks at what is left.
func (w *world) close() {
	w.t.Helper()
	if err := w.engine.Close(); err != nil {
		w.t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	failing := map[string]error{
		"own":         &dsl.Error{Type: "mine", Status: 418},
		"invalid":     outboard.Errorf(outboard.Invalid, "call", "no"),
		"exhausted":   outboard.Errorf(outboard.Exhausted, "call", "too much fuel"),
		"unreachable": outboard.Errorf(outboard.Unreachable, "call", "gone"),
		"other":       errors.New("no"),
	}
	for name, status := range map[string]int{"own": 418, "invalid": 400, "exhausted": 507, "unreachable": 503, "other": 502} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, func(_ *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
					return engine.Outcome{}, failing[c.Function]
				})
				got := w.run(`do: [{a: {call: `+name+`}}]`, ``)
				if got.Status != core.Faulted || got.Error.Status != status || got.Error.Instance != "/do/0/a" {
					t.Errorf("got %s (%v), want status %d", got.Status, got.Error, status)
				}
				w.close()
			})
		})
	}
}

// A call that finds no node or no room is made again.
func TestCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tries := 0
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			switch tries++; {
			case tries < 4:
				return engine.Outcome{}, outboard.Errorf(outboard.Unreachable, "call", "gone")
			case tries < 30:
				return engine.Outcome{}, outboard.Errorf(outboard.Busy, "call", "full")
			}
			return echo(n, c)
		})
		if got := w.run(`do: [{a: {call: f}}]`, `1`); got.Status != core.Completed || tries != 30 {
			t.Errorf("got %s (%v) after %d calls", got.Status, got.Error, tries)
		}
		w.close()
	})
}

// Large results are handed on by their place.
func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		picture := strings.Repeat("pixel", 100_000)
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			switch c.Function {
			case "decode":
				at := n.Arena(c.Execution, []byte(picture))
				return engine.Outcome{At: &at, Type: "image/x-raw", Run: engine.Run{Pointer: at.Size}}, nil
			case "blur":
				if c.At == nil || c.Type != "image/x-raw" {
					return engine.Outcome{}, fmt.Errorf("got %+v", c)
				}
				got, err := n.At(c.Execution, *c.At)
				return engine.Outcome{Body: append(got, '!')}, err
			}
			return echo(n, c)
		})
		id := w.start(`do: [{decode: {call: decode}}, {blur: {call: blur}}, {list: {call: echo, with: {body: "${ [.] }"}}}]`, `1`)
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`[{"$value":{"offset":%d,"size":%d,"step":"blur"}}]`, len(picture), len(picture)+1)
		if string(got.Output) != want {
			t.Errorf("got %s (%v), want %s", got.Output, got.Error, want)
		}
		if w.pool.Saved(id) != 2 {
			t.Errorf("%d values saved, want 2", w.pool.Saved(id))
		}
		x, err := w.engine.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s := x.Steps[0]; s.Run.Pointer != int64(len(picture)) || s.Value.Size != int64(len(picture)) || s.Value.Digest == "" {
			t.Errorf("step %+v", s)
		}
		w.close()
	})
}

// While a value is being saved calls without effects go on, and all else waits.
func TestSavingHoldsEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saving := make(chan struct{})
		var mu sync.Mutex
		var called []string
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			mu.Lock()
			called = append(called, c.Path)
			mu.Unlock()
			if c.Path == "make" {
				at := n.Arena(c.Execution, []byte("large"))
				return engine.Outcome{At: &at}, nil
			}
			return engine.Outcome{Body: []byte(`1`)}, nil
		})
		w.node.Fault = func(_ *enginetest.Node, op string, after bool) error {
			if op == "save" && !after {
				<-saving
			}
			return nil
		}
		id := w.start(`do: [{make: {call: pure}}, {use: {call: pure}}, {tell: {call: effect}}]`, ``)
		synctest.Wait()
		mu.Lock()
		if diff := cmp.Diff(called, []string{"make", "use"}); diff != "" {
			t.Errorf("called before the value was saved (-got +want):\n%s", diff)
		}
		mu.Unlock()
		if n := len(w.pool.Records("test/" + string(id))); n != 1 {
			t.Errorf("%d records before the value was saved, want the start alone", n)
		}
		close(saving)
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Status != core.Completed || len(called) != 3 {
			t.Errorf("got %+v, %v after calls %v", got, err, called)
		}
		w.close()
	})
}

// A value that can't be saved fails its step, and what followed is forgotten.
func TestUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := map[string]int{}
		var mu sync.Mutex
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			mu.Lock()
			calls[c.Path]++
			mu.Unlock()
			if c.Path == "careful/make" {
				at := n.Arena(c.Execution, []byte("large"))
				return engine.Outcome{At: &at}, nil
			}
			return engine.Outcome{Body: []byte(`1`)}, nil
		})
		w.node.Fault = func(_ *enginetest.Node, op string, after bool) error {
			if op == "save" && !after {
				return outboard.Errorf(outboard.Exhausted, "save", "the disk is full")
			}
			return nil
		}
		got := w.run(`do: [{careful: {try: [{make: {call: pure}}, {use: {call: pure}}], catch: {do: [{e: {set: {e: "${ $error.status }"}}}]}}}]`, ``)
		w.close() // and with it what was begun early
		if string(got.Output) != `{"e":507}` || calls["careful/make"] != 1 {
			t.Errorf("got %s (%v), calls %v", got.Output, got.Error, calls)
		}
	})
}

func TestLargeInputAndOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		large := `"` + strings.Repeat("x", engine.MaxInline) + `"`
		got := w.run(`do: [{a: {set: {x: "${ . }"}}}]`, large)
		if got.Status != core.Completed || got.Value != nil || !strings.Contains(string(got.Output), `":input"`) {
			t.Errorf("got %+v", got)
		}
		got = w.run(`do: [{a: {call: f}}]`, large)
		if got.Value == nil || got.Value.Size != int64(len(large)) || got.Value.Digest == "" {
			t.Errorf("got %+v", got)
		}
		got = w.run(`do: [{a: {set: {x: "${ \"y\" * 100000 }"}}}]`, `1`)
		if got.Status != core.Completed || got.Output != nil || got.Value == nil || got.Value.Type != "application/json" {
			t.Errorf("got %+v", got)
		}
		w.close()
	})
}

func TestIdempotentStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.pool.Deploy("app", "flow", parse(t, `do: [{a: {wait: PT1M}}]`))
		req := engine.StartRequest{App: "app", Workflow: "flow", Name: "order-7", Input: []byte(`7`)}
		for range 3 {
			if id, err := w.engine.Start(t.Context(), req); err != nil || id != "app/order-7" {
				t.Fatal(id, err)
			}
		}
		if _, err := w.engine.Wait(t.Context(), "app/order-7"); err != nil {
			t.Fatal(err)
		}
		req.Input = []byte(`8`)
		if _, err := w.engine.Start(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.pool.Claims(); n != 0 {
			t.Errorf("%d claims are left", n)
		}
		got, err := w.engine.Wait(t.Context(), "app/order-7")
		if err != nil || string(got.Output) != `7` {
			t.Errorf("got %+v, %v", got, err)
		}
		w.close()
	})
}

func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		w := open(t, echo, func(o *engine.Options) { o.Running, o.Executions, o.Registerer = 1, 3, registry })
		var ids []engine.ID
		for range 3 {
			ids = append(ids, w.start(`do: [{a: {wait: PT1M}}]`, ``))
		}
		_, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow"})
		if outboard.KindOf(err) != outboard.Busy || !strings.Contains(err.Error(), "try again") {
			t.Errorf("got %v", err)
		}
		for _, id := range ids {
			if got, err := w.engine.Wait(t.Context(), id); err != nil || got.Status != core.Completed {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "other"}); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("got %v", err)
		}
		w.close()
	})
}

// At most so many run at once; those that wait hold no place.
func TestRunningIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return echo(n, c)
		}, func(o *engine.Options) { o.Running = 3 })
		var ids []engine.ID
		for range 10 {
			ids = append(ids, w.start(`do: [{a: {call: f}}, {b: {wait: PT1H}}, {c: {call: f}}]`, ``))
		}
		began := time.Now()
		for _, id := range ids {
			if _, err := w.engine.Wait(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); most != 3 || took > time.Hour+10*time.Second {
			t.Errorf("%d ran at once, in %s", most, took)
		}
		w.close()
	})
}

func TestCancel(t *testing.T) {
	for name, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopped := make(chan struct{})
				w := open(t, echo, func(o *engine.Options) {
					o.Functions = enginetest.Functions{F: func(ctx context.Context, _ engine.FunctionCall) (engine.Outcome, error) {
						<-ctx.Done()
						close(stopped)
						return engine.Outcome{}, ctx.Err()
					}}
				})
				other := w.on(w.pool.Node("quay"), echo)
				id := w.start(`do: [{a: {call: f}}]`, ``)
				synctest.Wait()
				by := w.engine
				if elsewhere {
					by = other
				}
				look := func() {
					if err := w.engine.Refresh(t.Context(), id); err != nil {
						t.Error(err)
					}
				}
				look() // which changes nothing while there is no end
				synctest.Wait()
				select {
				case <-stopped:
					t.Error("the step was stopped without a reason")
				default:
				}
				if err := by.Cancel(t.Context(), id, "enough"); err != nil {
					t.Fatal(err)
				}
				look()
				<-stopped // at once: the engine goes on
				got, err := other.Wait(t.Context(), id)
				if err != nil || got.Status != core.Abandoned || got.Error.Detail != "enough" {
					t.Errorf("got %+v, %v", got, err)
				}
				if err := by.Cancel(t.Context(), id, "again"); err != nil {
					t.Error(err)
				}
				w.close()
				_ = other.Close()
			})
		})
	}
}

// An execution that waits for a place can be cancelled, and comes to its deadline.
// Nothing of it is begun then.
func TestQueuedExecutionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			calls++
			time.Sleep(time.Hour)
			return echo(n, c)
		}, func(o *engine.Options) { o.Running = 1 })
		first := w.start(`do: [{a: {call: f}}]`, `1`)
		synctest.Wait()
		second := w.start(`do: [{a: {call: f}}]`, `1`)
		began := time.Now()
		if err := w.engine.Cancel(t.Context(), second, "enough"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the cancellation took %s", took)
		}
		if got, err := w.engine.Wait(t.Context(), second); err != nil || got.Status != core.Abandoned {
			t.Error(got, err)
		}
		third, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Deadline: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.Wait(t.Context(), third)
		if took := time.Since(began); err != nil || got.Status != core.Faulted || got.Error.Status != 408 || took > 2*time.Minute {
			t.Errorf("got %+v, %v after %s", got, err, took)
		}
		if calls != 1 {
			t.Errorf("%d calls, want that of the first execution", calls)
		}
		if got, err := w.engine.Wait(t.Context(), first); err != nil || got.Status != core.Completed {
			t.Error(got, err)
		}
		w.close()
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		w.pool.Deploy("app", "flow", parse(t, `do: [{a: {wait: PT1H}}]`))
		began := time.Now()
		id, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Deadline: began.Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Status != core.Faulted || got.Error.Status != 408 || time.Since(began) > 61*time.Second {
			t.Errorf("got %+v, %v after %s", got, err, time.Since(began))
		}
		w.close()
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, echo)
		id := w.start(`do: [{hear: {listen: {to: {one: {with: {type: ping}}}}}}, {tell: {emit: {event: {with: {source: s, type: pong, data: "${ . }"}}}}}]`, ``)
		synctest.Wait()
		w.start(`do: [{tell: {emit: {event: {with: {source: s, type: ping, data: {n: 1.5}}}}}}]`, ``)
		got, err := w.engine.Wait(t.Context(), id)
		if err != nil || got.Status != core.Completed {
			t.Fatal(got, err)
		}
		last := w.pool.Published()[1]
		if diff := cmp.Diff(fmt.Sprint(last["data"], " ", last["id"]), "[map[n:1.5]] "+string(id)+"/tell"); diff != "" {
			t.Error(diff)
		}
		w.close()
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			at := n.Arena(c.Execution, []byte("large"))
			return engine.Outcome{At: &at}, nil
		}, func(o *engine.Options) { o.Retention = 24 * time.Hour })
		id := w.start(`do: [{a: {call: f}}]`, ``)
		rests := w.start(`do: [{a: {wait: P30D}}]`, ``)
		// The name looks like one that is generated in the far future.
		own, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Name: "orders000000000042"})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.engine.Cancel(t.Context(), own, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(23 * time.Hour)
		if _, err := w.engine.Get(t.Context(), id); err != nil || w.pool.Saved(id) != 1 {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if _, err := w.engine.Get(t.Context(), id); outboard.KindOf(err) != outboard.NotFound || w.pool.Saved(id) != 0 {
			t.Errorf("got %v", err)
		}
		if x, err := w.engine.Get(t.Context(), rests); err != nil || x.Status != core.Waiting {
			t.Error(x, err)
		}
		if _, err := w.engine.Get(t.Context(), own); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("%s is kept: %v", own, err)
		}
		w.close()
	})
}

// leftValues has values that were saved on this node for executions that ran on another one.
type leftValues struct {
	engine.Values

	mu              sync.Mutex
	left, forgotten []engine.ID
}

func (v *leftValues) Saved(_ context.Context, before time.Time) ([]engine.ID, error) {
	if time.Since(before) < time.Hour {
		return nil, errors.New("an execution that is starting may have saved them")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.left, nil
}

func (v *leftValues) Forget(ctx context.Context, id engine.ID) error {
	v.mu.Lock()
	v.forgotten = append(v.forgotten, id)
	v.mu.Unlock()
	return v.Values.Forget(ctx, id)
}

// A node removes the values of executions that another node has purged, and keeps those of others.
func TestValuesOfPurgedExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values *leftValues
		w := open(t, echo, func(o *engine.Options) {
			values = &leftValues{Values: o.Values}
			o.Values = values
		})
		runs := w.start(`do: [{a: {wait: P30D}}]`, ``)
		ended := w.start(`do: [{a: {set: {x: 1}}}]`, ``)
		values.mu.Lock()
		values.left = []engine.ID{runs, ended, "app/purged"}
		values.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		w.close()
		if len(values.forgotten) == 0 || slices.ContainsFunc(values.forgotten, func(id engine.ID) bool { return id != "app/purged" }) {
			t.Errorf("the values of %v were removed", values.forgotten)
		}
	})
}

// An execution whose tasks hold more than is left of the tenant's budget is cancelled, and what an execution
// held is free after its end.
func TestHeldOfAllExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := quota.NewBudget(quota.Executions, 10<<20)
		w := open(t, echo, func(o *engine.Options) { o.Held = budget })
		var branches strings.Builder
		for i := range 100 {
			fmt.Fprintf(&branches, "{b%d: {input: {from: '${ . }'}, wait: PT1H}}, ", i)
		}
		text, input := `do: [{all: {fork: {branches: [`+branches.String()+`]}}}, {b: {set: {x: 1}}}]`, `"`+strings.Repeat("x", 60_000)+`"`
		first, second := w.start(text, input), w.start(text, input)
		got, err := w.engine.Wait(t.Context(), second)
		if err != nil || got.Status != core.Abandoned || !strings.Contains(got.Error.Detail, "--tenant-limits executions=SIZE") {
			t.Errorf("the second: %+v, %v", got, err)
		}
		if got, err := w.engine.Wait(t.Context(), first); err != nil || got.Status != core.Completed {
			t.Errorf("the first: %+v, %v", got, err)
		}
		third := w.start(text, input)
		synctest.Wait()
		if held := budget.Held(); held < 6_000_000 {
			t.Errorf("the third holds %d bytes", held)
		}
		w.node.Kill()
		other := w.on(w.pool.Node("island"), echo, func(o *engine.Options) { o.Held = quota.NewBudget(quota.Executions, 1) })
		if got, err := other.Wait(t.Context(), third); err != nil || got.Status != core.Completed {
			t.Errorf("the third, on a node with a smaller limit: %+v, %v", got, err)
		}
		w.close()
		if held := budget.Held(); held != 0 {
			t.Errorf("%d bytes are held by nothing", held)
		}
	})
}

func TestGetAndList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(_ *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
			time.Sleep(time.Second)
			if c.Path == "careful/a" {
				return engine.Outcome{}, errors.New("no")
			}
			return engine.Outcome{Body: c.Body, Run: engine.Run{Node: "quay", Start: "reset", Copied: 9}}, nil
		})
		text := `do: [{careful: {try: [{a: {call: f}}], catch: {retry: {limit: {attempt: {count: 1}}}}}}, {b: {if: "false", call: g}}]`
		id := w.start(text, `1`)
		if got, err := w.engine.Get(t.Context(), id); err != nil || got.Status != core.Running || got.Steps[1].Status != core.Running {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := w.engine.Wait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, s := range got.Steps {
			lines = append(lines, fmt.Sprintf("%s %s %s %s attempt %d %s %s", s.Status, s.Kind, s.Path, s.Task, s.Attempt, s.Run.Node, s.Run.Took))
		}
		want := []string{
			"completed try careful /do/0/careful attempt 1  0s",
			"faulted call careful/a /do/0/careful/try/0/a attempt 1  1s",
			"completed call careful#2/a /do/0/careful/try/0/a attempt 2 quay 1s",
			"completed skipped b /do/1/b attempt 1  0s",
		}
		if diff := cmp.Diff(lines, want); diff != "" {
			t.Errorf("steps (-got +want):\n%s", diff)
		}
		w.pool.Undeploy("app", "flow")
		if got, err := w.engine.Get(t.Context(), id); err != nil || len(got.Steps) != 2 || got.Steps[1].Name != "a" {
			t.Errorf("without its workflow: %+v, %v", got, err)
		}
		time.Sleep(time.Millisecond)
		w.start(text, `2`)
		list, err := w.engine.List(t.Context(), engine.Filter{App: "app", Limit: 1})
		if err != nil || len(list) != 1 || list[0].ID == id {
			t.Errorf("got %+v, %v", list, err)
		}
		w.pool.Deploy("app", "other", parse(t, `do: [{a: {call: f}}]`))
		for i := range 40 {
			time.Sleep(time.Millisecond)
			req := engine.StartRequest{App: "app", Workflow: "other", Name: fmt.Sprint("x", i)}
			if i%2 == 0 {
				req.Name = ""
			}
			if _, err := w.engine.Start(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for range 2 {
			list, err = w.engine.List(t.Context(), engine.Filter{Limit: 25})
			if err != nil || len(list) != 25 || list[0].Status != core.Completed || !list[24].Started.Equal(list[0].Started.Add(-24*time.Millisecond)) {
				t.Errorf("got %+v, %v", list, err)
			}
		}
		all := len(list) + 17
		for f, want := range map[engine.Filter]int{
			{}:                                       all,
			{Workflow: "flow"}:                       2,
			{Status: core.Completed, Limit: all + 1}: all,
			{Status: core.Faulted, Limit: 1}:         0,
			{Name: "x3", Limit: 1}:                   1,
			{App: "app", Name: "x3", Workflow: "flow"}: 0,
		} {
			if list, err = w.engine.List(t.Context(), f); err != nil || len(list) != want {
				t.Errorf("%+v: %d executions, %v, want %d", f, len(list), err, want)
			}
		}
		w.close()
	})
}
