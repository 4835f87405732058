package core

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

const fuzzed = `document: {dsl: 1.0.0, namespace: test, name: fuzzed, version: 1.0.0}
timeout: {after: PT1H}
do:
  - a: {call: f, timeout: {after: PT1M}}
  - b:
      try: [{c: {call: g}}]
      catch: {retry: {delay: PT1S, limit: {attempt: {count: 2, duration: PT9S}}}, do: [{d: {set: {e: "${ $error.status }"}}}]}
  - e: {fork: {compete: true, branches: [{f: {wait: PT2S}}, {g: {listen: {to: {any: [{with: {type: x, data: "${ .n > 1 }"}}], until: ". | length > 1"}}}}]}}
  - h: {for: {in: "${ [1, 2] }"}, do: [{i: {emit: {event: {with: {source: s, type: "${ tostring }", data: "${ . }"}}}}}]}
`

// FuzzApply applies arbitrary logs to an execution.
func FuzzApply(f *testing.F) {
	w, err := dsl.Parse("fuzzed.yaml", []byte(fuzzed))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"at":"2026-11-20T12:00:00Z","started":{"version":1,"workflow":"x","input":{"n":1}}}
{"at":"2026-11-20T12:00:01Z","step":{"path":"a","value":{"size":3,"digest":"sha256:x"}}}
{"at":"2026-11-20T12:00:02Z","step":{"path":"b/c","error":{"type":"x","status":500}}}
{"at":"2026-11-20T12:00:03Z","fired":{"path":"b","timer":"retry"}}
{"at":"2026-11-20T12:00:04Z","step":{"path":"b#2/c","data":{"x":[1]}}}
{"at":"2026-11-20T12:00:05Z","received":{"path":"e/g","event":{"type":"x","id":"1","source":"s","data":{"n":2}}}}
{"at":"2026-11-20T12:00:06Z","fired":{"path":"e/f","timer":"wait"}}
{"at":"2026-11-20T12:00:07Z","emitted":{"path":"h[0]/i"}}
{"at":"2026-11-20T12:00:08Z","cancelled":{"reason":"x"}}`))
	f.Add([]byte(`{"started":{}}
{"fired":{"timer":"deadline"}}
{"taken":{}}
{"finished":{}}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		x, y := New("app/1", w), New("app/1", w)
		for line := range bytes.Lines(log) {
			var e Event
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			before := x.Status()
			wanted := x.Wants(e)
			actions, err := x.Apply(e)
			if _, other := y.Apply(e); (err == nil) != (other == nil) {
				t.Fatalf("%v, and then %v", err, other)
			}
			if !wanted && (len(actions) > 0 || x.Status() != before) {
				t.Fatalf("an event that is not wanted leads to %v", actions)
			}
		}
		if got, want := (&stage{}).show(x.Pending()), (&stage{}).show(y.Pending()); got != want {
			t.Fatalf("the same events lead to\n%s and to\n%s", got, want)
		}
		if x.Status().Over() != (len(x.Pending()) == 1 && isFinish(x.Pending()[0])) {
			t.Fatalf("%s with %v", x.Status(), x.Pending())
		}
	})
}

func isFinish(a Action) bool {
	_, ok := a.(Finish)
	return ok
}
