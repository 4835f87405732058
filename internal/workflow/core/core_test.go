package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
