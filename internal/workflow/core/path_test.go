package core

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// bucketKey is what NATS accepts as a key; dots, which have rules of their own, are left out.
var bucketKey = regexp.MustCompile(`^[-/_=a-zA-Z0-9]{1,200}$`)

// everyConstruct calls a function in every construct that has tasks, with names that are hard to write.
const everyConstruct = `do:
  - plain: {call: f}
  - with blanks and.dots: {call: f}
  - größe 音: {call: f}
  - nested: {do: [{in do: {call: f}}]}
  - each: {for: {each: i, in: "${ [1, 2] }"}, do: [{in loop: {call: f}}, {more: {do: [{deep: {call: f}}]}}]}
  - both: {fork: {branches: [{left one: {call: f}}, {right: {do: [{inner: {call: f}}]}}]}}
  - careful:
      try: [{risky: {call: failing}}]
      catch: {retry: {delay: {seconds: 1}, limit: {attempt: {count: 2}}}, do: [{mend it: {call: f}}]}
  - again: {call: f, then: decide}
  - decide: {switch: [{first: {when: "${ $context == null }", then: mark}}, {otherwise: {then: last one}}]}
  - mark: {set: {x: 1}, export: {as: "${ {seen: true} }"}, then: again}
  - last one: {call: f}
`

// TestIdempotencyKeys runs every construct of the DSL that has tasks: the keys of all calls are valid and
// differ, and those of a replay are the same.
func TestIdempotencyKeys(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	x := New("app/1", parse(t, everyConstruct))
	actions, err := x.Apply(Event{At: at, Started: &Started{Workflow: "w"}})
	keys, marks := map[string]string{}, ""
	for len(actions) > 0 && err == nil {
		a := actions[0]
		actions = actions[1:]
		var more []Action
		switch a := a.(type) {
		case Call:
			key := IdempotencyKey("app/1", a.Path)
			if other, ok := keys[key]; ok || !bucketKey.MatchString(key) {
				t.Errorf("the key of %q is %q, and that of %q", a.Path, key, other)
			}
			keys[key] = a.Path
			marks += a.Path
			step := &Step{Path: a.Path, Data: []byte(`{}`)}
			if a.Function == "failing" {
				step.Data, step.Error = nil, newError("https://example.org/failed", 500, "failed", nil)
			}
			more, err = x.Apply(Event{At: at, Step: step})
		case Timer:
			at = at.Add(time.Second)
			more, err = x.Apply(Event{At: at, Fired: &Fired{Path: a.Path, Timer: a.Kind}})
		}
		actions = append(actions, more...)
	}
	if r := x.Result(); r.Status != Completed || err != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	if len(keys) != 17 {
		t.Errorf("%d calls: %v", len(keys), keys)
	}
	for _, mark := range []string{"[1]", "#3", "!", "@2", " ", ".", "ö"} {
		if !strings.Contains(marks, mark) {
			t.Errorf("no path has %q: %s", mark, marks)
		}
	}
}

// TestIdempotencyKeysDiffer draws pairs of steps.
func TestIdempotencyKeysDiffer(t *testing.T) {
	name := rapid.StringOfN(rapid.SampledFrom([]rune("ab/=.# 2F")), 0, 300, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		x, y := IdempotencyKey("app/1", a), IdempotencyKey("app/1", b)
		if (x == y) != (a == b) || !bucketKey.MatchString(x) {
			t.Errorf("the keys of %q and %q are %q and %q", a, b, x, y)
		}
	})
}
