package core

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/itchyny/gojq"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// TestScenarios runs the files of testdata. A file consists of blocks of a command, "----"
// and its expected output; -rewrite writes the actual output.
//
//	workflow      the YAML below it is the workflow of what follows
//	start INPUT   begins it
//	step PATH DATA | step PATH error TYPE STATUS | step PATH value SIZE
//	emitted PATH
//	received PATH EVENT
//	fire          fires the next timer
//	fire late     fires a timer that has been stopped
//	pass DURATION advances the clock
//	cancel REASON
//	pending       the actions that a takeover starts again
//	history       the history of tasks
//
// After each command the execution is rebuilt from its log, and must be the same.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

var rewrite = flag.Bool("rewrite", false, "write what scenarios lead to into their files")

func play(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s := &stage{t: t}
	for _, block := range blocks(string(text)) {
		got := block.comment
		if block.command != "" {
			got += block.command + "\n----\n" + s.do(block.command)
		}
		out.WriteString(strings.TrimRight(got, "\n") + "\n\n")
	}
	got := strings.TrimRight(out.String(), "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(got, string(text)); diff != "" {
		t.Errorf("%s (-got +want; run with -rewrite if it is right):\n%s", file, diff)
	}
}

type block struct{ comment, command string }

// blocks splits a file at its expectations. A command ends at "----", an
// expectation at an empty line.
func blocks(text string) []block {
	var out []block
	var b block
	skipping := false
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimRight(line, "\n"); {
		case skipping:
			skipping = trimmed != ""
		case trimmed == "----":
			b.command = strings.TrimRight(b.command, "\n")
			out = append(out, b)
			b, skipping = block{}, true
		case b.command == "" && (trimmed == "" || strings.HasPrefix(trimmed, "#")):
			b.comment += line
		default:
			b.command += line
		}
	}
	return out
}

// stage is the state of a running scenario.
type stage struct {
	t        *testing.T
	workflow *dsl.Workflow
	x        *Execution
	log      [][]byte
	now      time.Time
	timers   []Timer
	last     Timer
}

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func (s *stage) do(command string) string {
	head, rest, _ := strings.Cut(command, "\n")
	words := strings.SplitN(head, " ", 3)
	for len(words) < 3 {
		words = append(words, "")
	}
	if words[0] == "workflow" {
		return s.load(rest)
	}
	if rest != "" {
		words[2] = strings.TrimSpace(words[2] + " " + rest)
	}
	return s.play(words)
}

func (s *stage) load(text string) string {
	const document = "document: {dsl: 1.0.0, namespace: test, name: scenario, version: 1.0.0}\n"
	w, err := dsl.Parse("scenario.yaml", []byte(document+text))
	if err != nil {
		return err.Error()
	}
	*s = stage{t: s.t, workflow: w, x: New("app/1", w), now: epoch}
	return "ok"
}

func (s *stage) play(words []string) string {
	switch words[0] {
	case "start":
		input := strings.TrimSpace(words[1] + " " + words[2])
		return s.apply(Event{Started: &Started{Workflow: "scenario", Input: json.RawMessage(input)}})
	case "step":
		return s.apply(Event{Step: step(words[1], words[2])})
	case "emitted":
		return s.apply(Event{Emitted: &Emitted{Path: words[1]}})
	case "received":
		var e CloudEvent
		if err := json.Unmarshal([]byte(words[2]), &e); err != nil {
			return err.Error()
		}
		return s.apply(Event{Received: &Received{Path: words[1], Event: e}})
	case "fire":
		return s.fire(words[1] == "late")
	case "pass":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err.Error()
		}
		s.now = s.now.Add(d)
		return "ok"
	case "cancel":
		return s.apply(Event{Cancelled: &Cancelled{Reason: words[1]}})
	case "pending":
		return s.show(s.x.Pending())
	case "history":
		return s.history()
	}
	return "unknown command " + words[0]
}

func step(path, what string) *Step {
	words := strings.Fields(what)
	switch {
	case len(words) == 3 && words[0] == "error":
		var status int
		_, _ = fmt.Sscan(words[2], &status)
		return &Step{Path: path, Error: &dsl.Error{Type: words[1], Status: status}}
	case len(words) == 2 && words[0] == "value":
		var size int64
		_, _ = fmt.Sscan(words[1], &size)
		return &Step{Path: path, Value: &Value{Size: size, Digest: "sha256:x"}}
	}
	return &Step{Path: path, Data: json.RawMessage(what)}
}

// fire fires the next timer, or the last one again.
func (s *stage) fire(late bool) string {
	if !late {
		if len(s.timers) == 0 {
			return "no timer"
		}
		at := 0
		for i, t := range s.timers {
			if t.At.Before(s.timers[at].At) {
				at = i
			}
		}
		s.last = s.timers[at]
		s.timers = append(s.timers[:at], s.timers[at+1:]...)
		if s.last.At.After(s.now) {
			s.now = s.last.At
		}
	}
	head := fmt.Sprintf("%s of %q after %s\n", s.last.Kind, s.last.Path, s.last.At.Sub(epoch))
	return head + s.apply(Event{Fired: &Fired{Path: s.last.Path, Timer: s.last.Kind, Attempt: s.last.Attempt}})
}

func (s *stage) apply(e Event) string {
	e.At = s.now
	wanted := s.x.Wants(e)
	actions, err := s.x.Apply(e)
	if err != nil {
		return "error: " + err.Error()
	}
	text, err := json.Marshal(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.log = append(s.log, text)
	for _, a := range actions {
		s.time(a)
	}
	s.replay()
	out := s.show(actions)
	if !wanted {
		out = "not wanted\n" + out
	}
	return out + "status " + string(s.x.Status())
}

// time keeps the timers.
func (s *stage) time(a Action) {
	switch a := a.(type) {
	case Timer:
		s.timers = append(s.timers, a)
	case Stop:
		kept := s.timers[:0]
		for _, t := range s.timers {
			if !Below(t.Path, a.Path) {
				kept = append(kept, t)
			}
		}
		s.timers = kept
	}
}

// replay rebuilds the execution from its log.
func (s *stage) replay() {
	s.t.Helper()
	y := rebuild(s.t, s.workflow, s.log)
	if diff := cmp.Diff(s.show(y.Pending()), s.show(s.x.Pending())); diff != "" {
		s.t.Errorf("pending after a replay (-replay +live):\n%s", diff)
	}
	if y.Status() != s.x.Status() {
		s.t.Errorf("status after a replay: %s, live: %s", y.Status(), s.x.Status())
	}
	s.x = y
}

func rebuild(t testing.TB, w *dsl.Workflow, log [][]byte) *Execution {
	t.Helper()
	y := New("app/1", w)
	for _, text := range log {
		var e Event
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		if _, err := y.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return y
}

func (s *stage) show(actions []Action) string {
	var out strings.Builder
	for _, a := range actions {
		out.WriteString(describe(a) + "\n")
	}
	return out.String()
}

func describe(a Action) string {
	switch a := a.(type) {
	case Call:
		text := "call " + a.Path + ": " + a.Function
		if a.Entry != "" {
			text += "." + a.Entry
		}
		if len(a.Meta) > 0 {
			text += fmt.Sprint(" ", a.Meta)
		}
		return text + " " + show(a.Body)
	case Timer:
		return fmt.Sprintf("timer %s %q at %s", a.Kind, a.Path, a.At.Sub(epoch))
	case Emit:
		return "emit " + a.Path + " " + show(map[string]any(a.Event))
	case Listen:
		text := "listen " + a.Path
		for _, f := range a.Filters {
			text += " " + show(f.With)
		}
		return text
	case Stop:
		return fmt.Sprintf("stop %q", a.Path)
	case Finish:
		text := "finish " + string(a.Finished.Status)
		if a.Finished.Error != nil {
			text += " " + show(errorData(a.Finished.Error))
		}
		return text + " " + string(a.Finished.Output)
	}
	return fmt.Sprintf("%#v", a)
}

func show(v any) string {
	text, err := gojq.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *stage) history() string {
	var out strings.Builder
	for _, h := range s.x.History() {
		fmt.Fprintf(&out, "%-9s %-8s %s", h.Status, h.Kind, h.Path)
		if h.Attempt > 1 {
			fmt.Fprintf(&out, " attempt %d", h.Attempt)
		}
		if h.Round > 0 {
			fmt.Fprintf(&out, " round %d", h.Round)
		}
		fmt.Fprintf(&out, " %s", h.Began.Sub(epoch))
		if !h.Ended.IsZero() {
			fmt.Fprintf(&out, " to %s", h.Ended.Sub(epoch))
		}
		if h.Error != nil {
			fmt.Fprintf(&out, " (%v)", h.Error)
		}
		out.WriteString("\n")
	}
	return out.String()
}
