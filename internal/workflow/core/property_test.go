package core

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// sketch draws a workflow.
type sketch struct {
	t     *rapid.T
	names int
}

func (s *sketch) tasks(depth int) []any {
	n := rapid.IntRange(1, 3).Draw(s.t, "tasks")
	var list []any
	var names []string
	for range n {
		s.names++
		names = append(names, fmt.Sprint("t", s.names))
	}
	for i, name := range names {
		task := s.task(depth)
		switch rapid.IntRange(0, 19).Draw(s.t, "then") {
		case 0:
			task["then"] = "exit"
		case 1:
			task["then"] = names[rapid.IntRange(i, n-1).Draw(s.t, "to")]
			if task["then"] == name {
				delete(task, "then")
			}
		case 2:
			task["if"] = "${ ($input | tostring | length) > 3 }"
		case 3:
			task["timeout"] = map[string]any{"after": map[string]any{"seconds": rapid.IntRange(1, 20).Draw(s.t, "timeout")}}
		}
		list = append(list, map[string]any{name: task})
	}
	return list
}

func (s *sketch) task(depth int) map[string]any {
	kinds := []string{"call", "call", "call", "set", "wait", "emit", "listen", "raise", "switch"}
	if depth > 0 {
		kinds = append(kinds, "do", "for", "fork", "race", "try", "try", "retry")
	}
	switch rapid.SampledFrom(kinds).Draw(s.t, "kind") {
	case "set":
		return map[string]any{"set": map[string]any{"was": "${ tostring | .[:20] }", "at": "${ now }"}}
	case "wait":
		return map[string]any{"wait": map[string]any{"seconds": rapid.IntRange(0, 9).Draw(s.t, "wait")}}
	case "emit":
		return map[string]any{"emit": map[string]any{"event": map[string]any{"with": map[string]any{"source": "s", "type": "t", "data": 1}}}}
	case "listen":
		return map[string]any{"listen": map[string]any{"to": map[string]any{"all": []any{
			map[string]any{"with": map[string]any{"type": "a"}}, map[string]any{"with": map[string]any{"type": "b"}},
		}}}}
	case "raise":
		return map[string]any{"raise": map[string]any{"error": map[string]any{"type": "x", "status": 500}}}
	case "switch":
		return map[string]any{"switch": []any{map[string]any{"c": map[string]any{"when": "${ . == null }", "then": "exit"}}}}
	case "do":
		return map[string]any{"do": s.tasks(depth - 1)}
	case "for":
		return map[string]any{"for": map[string]any{"in": "${ [1, 2] }"}, "do": s.tasks(depth - 1)}
	case "fork":
		return map[string]any{"fork": map[string]any{"branches": s.branches(depth - 1)}}
	case "race":
		return map[string]any{"fork": map[string]any{"compete": true, "branches": s.branches(depth - 1)}}
	case "try":
		return map[string]any{"try": s.tasks(depth - 1), "catch": map[string]any{"do": s.tasks(depth - 1)}}
	case "retry":
		return map[string]any{"try": s.tasks(depth - 1), "catch": map[string]any{"retry": map[string]any{
			"delay": map[string]any{"seconds": rapid.IntRange(0, 3).Draw(s.t, "delay")}, "backoff": map[string]any{"linear": map[string]any{}},
			"limit": map[string]any{"attempt": map[string]any{"count": 2, "duration": map[string]any{"seconds": 15}}},
		}}}
	}
	return map[string]any{"call": "f"}
}

func (s *sketch) branches(depth int) []any {
	list := s.tasks(depth)
	for _, b := range list {
		for _, task := range b.(map[string]any) {
			if then := task.(map[string]any)["then"]; then != nil && then != "exit" {
				delete(task.(map[string]any), "then")
			}
		}
	}
	return list
}

func (s *sketch) workflow() *dsl.Workflow {
	text, err := json.Marshal(map[string]any{
		"document": map[string]any{"dsl": "1.0.0", "namespace": "test", "name": "drawn", "version": "1.0.0"},
		"timeout":  map[string]any{"after": map[string]any{"minutes": 2}},
		"do":       s.tasks(3),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := dsl.Parse("drawn.json", text)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	return w
}

// player performs the actions of an execution. The result and the duration of a call
// depend on its path alone, so that two players of one workflow produce the same events,
// whenever one of them was interrupted.
type player struct {
	t        *rapid.T
	workflow *dsl.Workflow
	x        *Execution
	log      [][]byte
	agenda   []appointment
	called   map[string]int // calls by path
	ended    map[string]bool
}

type appointment struct {
	at    time.Time
	path  string
	event Event
}

func newPlayer(t *rapid.T, w *dsl.Workflow) *player {
	p := &player{t: t, workflow: w, x: New("app/1", w), called: map[string]int{}, ended: map[string]bool{}}
	p.apply(Event{At: epoch, Started: &Started{Input: json.RawMessage(`{"n": 1}`)}})
	return p
}

func (p *player) apply(e Event) {
	text, err := json.Marshal(e)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.x.Wants(e) {
		p.log = append(p.log, text)
		if e.Step != nil {
			if p.ended[e.Step.Path] {
				p.t.Fatalf("step %s ends twice", e.Step.Path)
			}
			p.ended[e.Step.Path] = true
		}
	}
	actions, err := p.x.Apply(e)
	if err != nil {
		p.t.Fatal(err)
	}
	p.do(actions)
}

func (p *player) do(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case Call:
			if p.called[a.Path]++; p.ended[a.Path] {
				p.t.Fatalf("step %s is called though its end is recorded", a.Path)
			}
			p.add(began(p.x, a.Path).Add(lasts(a.Path)), a.Path, Event{Step: result(a.Path)})
		case Timer:
			p.add(a.At, a.Path, Event{Fired: &Fired{Path: a.Path, Timer: a.Kind}})
		case Emit:
			p.add(began(p.x, a.Path).Add(lasts(a.Path)), a.Path, Event{Emitted: &Emitted{Path: a.Path}})
		case Listen:
			for i, kind := range []string{"a", "c", "b"} {
				at := a.Since.Add(time.Duration(i+1) * time.Second)
				p.add(at, a.Path, Event{Received: &Received{Path: a.Path, Event: CloudEvent{"type": kind, "id": kind, "source": "s"}}})
			}
		case Stop:
			p.agenda = slices.DeleteFunc(p.agenda, func(b appointment) bool { return Below(b.path, a.Path) })
		case Finish:
		}
	}
}

func (p *player) add(at time.Time, path string, e Event) {
	p.agenda = append(p.agenda, appointment{at, path, e})
}

// began is when the task at a path began.
func began(x *Execution, path string) time.Time {
	for _, h := range x.History() {
		if h.Path == path {
			return h.Began
		}
	}
	return epoch
}

func hash(path string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	return h.Sum64() >> 7
}

// lasts returns a call's duration. All durations differ, so that the order of completions
// is unique.
func lasts(path string) time.Duration {
	return time.Duration(hash(path)%5_000_000_007) * time.Nanosecond
}

func result(path string) *Step {
	switch hash(path) % 5 {
	case 0:
		return &Step{Path: path, Error: &dsl.Error{Type: "broken", Status: 500}}
	case 1:
		return &Step{Path: path, Value: &Value{Size: 100_000, Digest: "sha256:x"}}
	}
	data, err := json.Marshal(path)
	if err != nil {
		return nil
	}
	return &Step{Path: path, Data: data}
}

// next fires the earliest appointment. It reports false when there is none.
func (p *player) next() bool {
	if p.x.Status().Over() || len(p.agenda) == 0 {
		return false
	}
	first := 0
	for i, a := range p.agenda {
		if b := p.agenda[first]; a.at.Before(b.at) || a.at.Equal(b.at) && order(a) < order(b) {
			first = i
		}
	}
	a := p.agenda[first]
	p.agenda = slices.Delete(p.agenda, first, first+1)
	a.event.At = a.at
	p.apply(a.event)
	return true
}

// order is that of appointments at the same time.
func order(a appointment) string {
	text, err := json.Marshal(a.event)
	if err != nil {
		return a.path
	}
	return a.path + string(text)
}

// crash discards all state but the log.
func (p *player) crash() {
	p.x, p.agenda = New("app/1", p.workflow), nil
	for _, text := range p.log {
		var e Event
		if err := json.Unmarshal(text, &e); err != nil {
			p.t.Fatal(err)
		}
		if _, err := p.x.Apply(e); err != nil {
			p.t.Fatal(err)
		}
	}
	p.do(p.x.Pending())
}

func (p *player) outcome() string {
	var out strings.Builder
	for _, text := range p.log {
		out.Write(text)
		out.WriteString("\n")
	}
	text, err := json.Marshal(p.x.Result())
	if err != nil {
		p.t.Fatal(err)
	}
	return out.String() + string(p.x.Status()) + " " + string(text)
}

// TestCrashes crashes random workflows at random points. The log and the outcome equal
// those of the same workflow without a crash, no step whose completion is recorded is
// called again, and no action is lost.
func TestCrashes(t *testing.T) {
	over := map[Status]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := (&sketch{t: t}).workflow()
		calm, stormy := newPlayer(t, w), newPlayer(t, w)
		for calm.next() {
		}
		if !calm.x.Status().Over() {
			t.Fatalf("it ends with nothing to do, and is %s", calm.x.Status())
		}
		for {
			if rapid.IntRange(0, 2).Draw(t, "crash") == 0 {
				stormy.crash()
			}
			if !stormy.next() {
				break
			}
		}
		if diff := cmp.Diff(stormy.outcome(), calm.outcome()); diff != "" {
			t.Fatalf("with crashes (-) and without (+):\n%s", diff)
		}
		over[calm.x.Status()]++
	})
	if over[Completed] == 0 || over[Faulted] == 0 {
		t.Errorf("outcomes: %v; the test should see all", over)
	}
}
