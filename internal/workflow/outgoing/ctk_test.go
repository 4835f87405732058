package outgoing_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// scenario is one of the conformance test kit.
type scenario struct {
	name  string
	steps []step
}

// step is a sentence of a scenario, with the block of YAML behind it.
type step struct{ text, block string }

// readFeature reads the scenarios of a file in Gherkin.
func readFeature(t *testing.T, file string) []scenario {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []scenario
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if name, ok := strings.CutPrefix(line, "Scenario: "); ok {
			all = append(all, scenario{name: name})
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if !slices.Contains([]string{"Given", "When", "Then", "And"}, word) || len(all) == 0 {
			continue
		}
		s := step{text: strings.TrimPrefix(strings.TrimSuffix(rest, ":"), "given ")}
		if i+1 < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[i+1]), `"""`) {
			begin := i + 2
			for i = begin; strings.TrimSpace(lines[i]) != `"""`; i++ {
			}
			s.block = strings.Join(lines[begin:i], "\n")
		}
		last := &all[len(all)-1]
		last.steps = append(last.steps, s)
	}
	return all
}

// TestConformance runs the scenarios of the Serverless Workflow Conformance Test Kit. The services that
// they call answer here.
func TestConformance(t *testing.T) {
	files, err := filepath.Glob("testdata/ctk/*.feature")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		for _, s := range readFeature(t, file) {
			ran++
			t.Run(filepath.Base(file)+"/"+s.name, func(t *testing.T) { runScenario(t, s) })
		}
	}
	if ran != 21 {
		t.Errorf("%d scenarios, want 21", ran)
	}
}

func runScenario(t *testing.T, s scenario) {
	var definition, input string
	var r *execution
	for _, step := range s.steps {
		switch step.text {
		case "a workflow with definition":
			definition = step.block
		case "the workflow input is":
			input = jsonOf(t, step.block)
		case "the workflow is executed":
			r = execute(t, definition, input)
		default:
			r.check(t, step)
		}
	}
}

// execution is how the workflow of a scenario ended.
type execution struct {
	engine.Result
	order []string // the names of its tasks
}

func (r *execution) check(t *testing.T, s step) {
	t.Helper()
	words := regexp.MustCompile(`'[^']*'`).FindAllString(s.text, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	first, verb, _ := strings.Cut(s.text, " should ")
	switch {
	case verb == "complete":
		r.is(t, core.Completed)
	case verb == "complete with output":
		r.is(t, core.Completed)
		r.same(t, "", s.block)
	case verb == "fault":
		r.is(t, core.Faulted)
	case verb == "fault with error":
		r.is(t, core.Faulted)
		var want map[string]any
		decode(t, s.block, &want)
		if r.Error == nil || want["type"] != r.Error.Type || want["title"] != r.Error.Title || want["instance"] != r.Error.Instance || want["status"] != r.Error.Status {
			t.Errorf("the error is %+v, want %v", r.Error, want)
		}
	case strings.HasPrefix(verb, "have properties"):
		for _, path := range words {
			if r.at(t, path) == nil {
				t.Errorf("the output has no %s: %s", path, r.Output)
			}
		}
	case strings.HasSuffix(verb, "property with value"):
		r.same(t, words[0], s.block)
	case strings.HasSuffix(verb, " items"):
		fields := strings.Fields(verb)
		want, _ := strconv.Atoi(fields[len(fields)-2])
		if items, _ := r.at(t, words[0]).([]any); len(items) != want {
			t.Errorf("%s has %d items, want %d", words[0], len(items), want)
		}
	case strings.HasPrefix(verb, "run "):
		r.checkOrder(t, first, strings.TrimPrefix(verb, "run "))
	default:
		t.Errorf("the step is not known: %s", s.text)
	}
}

func (r *execution) checkOrder(t *testing.T, task, when string) {
	t.Helper()
	at := slices.Index(r.order, task)
	after, isAfter := strings.CutPrefix(when, "after ")
	switch {
	case at < 0:
		t.Errorf("%s did not run: %v", task, r.order)
	case when == "first" && at != 0, when == "last" && at != len(r.order)-1, isAfter && (at == 0 || r.order[at-1] != after):
		t.Errorf("%s ran not %s: %v", task, when, r.order)
	}
}

func (r *execution) is(t *testing.T, want core.Status) {
	t.Helper()
	if r.Status != want {
		t.Fatalf("it is %s (%v), want %s", r.Status, r.Error, want)
	}
}

// at returns the value at a path, "a.b", of the output.
func (r *execution) at(t *testing.T, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(r.Output, &v); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (r *execution) same(t *testing.T, path, block string) {
	t.Helper()
	var want any
	if err := json.Unmarshal([]byte(jsonOf(t, block)), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, r.at(t, path)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func jsonOf(t *testing.T, block string) string {
	t.Helper()
	var v any
	decode(t, block, &v)
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, block string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(block), to); err != nil {
		t.Fatal(err)
	}
}
