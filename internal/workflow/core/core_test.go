package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
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

// An execution that never completes ends when its log reaches the limit.
func TestTooLong(t *testing.T) {
	x := New("app/1", parse(t, "do: [{a: {call: f}}, {b: {set: {x: 1}, then: a}}]"))
	x.maxEvents = 10
	actions, err := x.Apply(Event{Started: &Started{}})
	for n := 0; err == nil && !x.Status().Over(); n++ {
		if n > 10 {
			t.Fatal("it does not end")
		}
		call, ok := actions[len(actions)-1].(Call)
		if !ok {
			t.Fatalf("got %v", actions)
		}
		actions, err = x.Apply(Event{Step: &Step{Path: call.Path, Data: json.RawMessage("1")}})
	}
	if err != nil || x.Result().Error == nil || x.Result().Error.Status != 508 {
		t.Errorf("got %+v, %v", x.Result(), err)
	}
}

func TestReferences(t *testing.T) {
	for text, want := range map[string]string{
		`{"$value": {"step": "a", "size": 3}}`:              `{a 3 }`,
		`{"$value": {"step": "a", "size": 3, "type": "x"}}`: `{a 3 x}`,
		`{"$value": {"step": "a"}, "b": 1}`:                 ``,
		`{"$value": {"size": 3}}`:                           ``,
		`{"$value": 3}`:                                     ``,
		`{"step": "a"}`:                                     ``,
		`[1]`:                                               ``,
	} {
		data, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if ref, ok := ReferenceOf(data); ok {
			got = fmt.Sprint(ref)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	if _, err := Decode([]byte(`1 2`)); err == nil || !strings.Contains(err.Error(), "more behind") {
		t.Errorf("two values: %v", err)
	}
}

// TestLongNumbers: a number whose reading would take time with the square of its length is refused.
func TestLongNumbers(t *testing.T) {
	for name, text := range map[string]string{"value": "%s", "member": `{"n":%s}`, "item": `[[%s]]`} {
		for digits, ok := range map[int]bool{1000: true, 100_000: false} {
			number := strings.Repeat("7", digits)
			if _, err := Decode([]byte(strings.Replace(text, "%s", number, 1))); (err == nil) != ok {
				t.Errorf("%s of %d digits: %v", name, digits, err)
			}
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		path, of string
		want     bool
	}{
		{"a", "", true},
		{"a", "a", true},
		{"a/b", "a", true},
		{"a[1]/b", "a", true},
		{"a#2/b", "a", true},
		{"a!/b", "a", true},
		{"a@2", "a", false},
		{"ab", "a", false},
		{"a", "a/b", false},
		{"b/a", "a", false},
	} {
		if got := Below(c.path, c.of); got != c.want {
			t.Errorf("Below(%q, %q) is %v", c.path, c.of, got)
		}
	}
}

// TestHeardEvents: the events that a task has received count as values that it holds.
func TestHeardEvents(t *testing.T) {
	x := New("app/1", parse(t, `do: [{a: {listen: {to: {any: [], until: "${ false }"}}}}]`))
	if _, err := x.Apply(Event{Started: &Started{}}); err != nil {
		t.Fatal(err)
	}
	data := strings.Repeat("x", MaxEvent/2)
	for n := 1; !x.Status().Over(); n++ {
		if n*len(data) > 2*maxHeld {
			t.Fatalf("%d events of %d bytes: the execution holds %d", n, len(data), x.Held())
		}
		e := Event{Received: &Received{Path: "a", Event: CloudEvent{"source": "s", "id": fmt.Sprint(n), "data": data}}}
		if _, err := x.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if r := x.Result(); r.Error == nil || r.Error.Status != 507 {
		t.Errorf("got %+v", r)
	}
}

// TestWorkBetweenEvents ends a workflow whose expressions, each within its limits, compute too much before
// anything happens. Each event begins with a full budget.
func TestWorkBetweenEvents(t *testing.T) {
	const round = `{set: "${ [range(20000)] | length }"}`
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	x := New("app/1", parse(t, `do: [{all: {for: {each: i, in: "${ [range(1000)] }"}, do: [{one: `+round+`}]}}]`))
	if _, err := x.Apply(Event{At: at, Started: &Started{Workflow: "w"}}); err != nil {
		t.Fatal(err)
	}
	if r := x.Result(); r.Status != Faulted || r.Error == nil || !strings.Contains(r.Error.Detail, "too many steps") {
		t.Errorf("got %+v", r)
	}
	x = New("app/2", parse(t, `do: [{all: {for: {each: i, in: "${ [range(100)] }"}, do: [{one: `+round+`}, {two: {wait: {seconds: 1}}}]}}]`))
	actions, err := x.Apply(Event{At: at, Started: &Started{Workflow: "w"}})
	for ; err == nil && !x.Status().Over(); at = at.Add(time.Second) {
		timer, ok := actions[len(actions)-1].(Timer)
		if !ok {
			t.Fatalf("no timer among %+v", actions)
		}
		actions, err = x.Apply(Event{At: timer.At, Fired: &Fired{Path: timer.Path, Timer: timer.Kind}})
	}
	if r := x.Result(); r.Status != Completed || err != nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// startExecution starts an execution of a workflow.
func startExecution(t *testing.T, text, input string) (*Execution, []Action) {
	t.Helper()
	x := New("app/1", parse(t, text))
	actions, err := x.Apply(Event{At: epoch, Started: &Started{Workflow: "w", Input: []byte(input)}})
	if err != nil {
		t.Fatal(err)
	}
	return x, actions
}

// TestHeldIsBounded ends workflows whose branches hold large values side by side. Values that
// follow each other do not add up.
func TestHeldIsBounded(t *testing.T) {
	const large = `"${ . }"`
	input := `"` + strings.Repeat("x", 3_000_000) + `"`
	branches := func(task string) string {
		var all strings.Builder
		for i := range 100 {
			fmt.Fprintf(&all, "{b%d: %s}, ", i, task)
		}
		return `do: [{all: {fork: {branches: [` + all.String() + `]}}}]`
	}
	for name, text := range map[string]string{
		"outputs":        branches(`{set: ` + large + `}`),
		"inputs":         branches(`{input: {from: ` + large + `}, wait: PT1H}`),
		"bodies":         branches(`{call: f, with: {body: ` + large + `}}`),
		"inner outputs":  branches(`{fork: {branches: [{a: {set: ` + large + `}}, {b: {set: ` + large + `}}]}}`),
		"inputs of runs": branches(`{run: {workflow: {namespace: a, name: b, input: ` + large + `}}}`),
		"services":       branches(`{call: http, with: {method: post, endpoint: "https://a.b", body: ` + large + `}}`),
	} {
		x, _ := startExecution(t, text, input)
		if r := x.Result(); r.Status != Faulted || !strings.Contains(r.Error.Detail, "256 MiB") {
			t.Errorf("%s: %s %v", name, r.Status, r.Error)
		}
	}
	x, _ := startExecution(t, `do: [{all: {for: {in: "${ [range(100)] }"}, do: [{a: {input: {from: `+large+`}, set: `+large+`}}]}}, {b: {set: {done: true}}}]`, input)
	if r := x.Result(); r.Status != Completed {
		t.Errorf("one after another: %s %v", r.Status, r.Error)
	}
}

// TestErrorsAreBounded checks the texts of errors, which the history keeps.
func TestErrorsAreBounded(t *testing.T) {
	for _, task := range []string{
		`{raise: {error: {type: mine, status: 500, detail: "${ \"ä\" * 1000000 }"}}}`,
		`{set: "${ error(\"x\" * 1000000) }"}`,
	} {
		x, _ := startExecution(t, `do: [{t: {try: [{a: `+task+`}], catch: {errors: {}}}}]`, ``)
		for _, h := range x.History() {
			if h.Path == "t/a" && (h.Error == nil || len(h.Error.Detail) > 5000 || !utf8.ValidString(h.Error.Detail)) {
				t.Errorf("%s: %+.100v", task, h.Error)
			}
		}
	}
}

// TestJitterAfterManyAttempts checks that jitter alone separates attempts, also when the factor of the
// back-off has become infinite.
func TestJitterAfterManyAttempts(t *testing.T) {
	x, actions := startExecution(t, `do: [{t: {try: [{a: {call: f}}], catch: {retry: {backoff: {exponential: {}}, jitter: {from: PT1S, to: PT2S}, limit: {attempt: {count: 2000}}}}}}]`, ``)
	now := epoch
	for i := range 1100 {
		call, ok := actions[len(actions)-1].(Call)
		if !ok {
			t.Fatalf("attempt %d: no call among %+v", i, actions)
		}
		failed, err := x.Apply(Event{At: now, Step: &Step{Path: call.Path, Error: &dsl.Error{Type: "x", Status: 500}}})
		if err != nil {
			t.Fatal(err)
		}
		timer, ok := failed[len(failed)-1].(Timer)
		if !ok || timer.At.Sub(now) < time.Second || timer.At.Sub(now) > 2*time.Second {
			t.Fatalf("attempt %d: %+v", i, failed)
		}
		now = timer.At
		if actions, err = x.Apply(Event{At: now, Fired: &Fired{Path: timer.Path, Timer: timer.Kind}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTimerOfEarlierAttempt applies the expiry of an attempt's timer after the next attempt has begun:
// its Stop is performed only when the end of the attempt is recorded.
func TestTimerOfEarlierAttempt(t *testing.T) {
	x, actions := startExecution(t, `do: [{t: {try: [{a: {call: f}}], catch: {retry: {limit: {attempt: {count: 5, duration: PT10S}}}}}}]`, ``)
	first, ok := actions[0].(Timer)
	if !ok || first.Kind != AttemptTimer {
		t.Fatalf("actions: %+v", actions)
	}
	if _, err := x.Apply(Event{At: epoch.Add(9999 * time.Millisecond), Step: &Step{Path: "t/a", Error: &dsl.Error{Type: "x", Status: 500}}}); err != nil {
		t.Fatal(err)
	}
	late := Event{At: first.At, Fired: &Fired{Path: first.Path, Timer: first.Kind, Attempt: first.Attempt}}
	if x.Wants(late) {
		t.Error("the second attempt ends when the first would have")
	}
	if _, err := x.Apply(Event{At: epoch.Add(11 * time.Second), Step: &Step{Path: "t#2/a", Data: []byte("1")}}); err != nil || x.Status() != Completed {
		t.Errorf("%s, %v", x.Status(), err)
	}
}

// TestFiltersAreBounded searches an event for a regular expression that takes too long.
func TestFiltersAreBounded(t *testing.T) {
	x, _ := startExecution(t, `do: [{l: {listen: {to: {any: [{with: {type: "(?:a?b?){1000}a*"}}, {with: {type: "x.z"}}]}}}}]`, ``)
	event := func(kind string) Event {
		return Event{At: epoch, Received: &Received{Path: "l", Event: CloudEvent{"id": "1", "source": "s", "type": kind}}}
	}
	if x.Wants(event(strings.Repeat("a", 200_000))) {
		t.Error("the search was not bounded")
	}
	if x.Wants(event("xyzz")) || !x.Wants(event("xyz")) {
		t.Error("a regular expression matches all of a text")
	}
}

// TestEmitRefused raises errors for events that would be published in vain, again and again.
func TestEmitRefused(t *testing.T) {
	for _, data := range []string{`"${ \"x\" * 300000 }"`, `"${ [nan] }"`} {
		x, _ := startExecution(t, `do: [{e: {emit: {event: {with: {source: s, type: t, data: `+data+`}}}}}]`, ``)
		if r := x.Result(); r.Status != Faulted || r.Error.Type != dsl.ErrorValidation {
			t.Errorf("%s: %s %+v", data, x.Status(), r.Error)
		}
	}
}
