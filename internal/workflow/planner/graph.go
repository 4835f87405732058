package planner

import (
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// history is the record of earlier executions for one call of a workflow.
type history struct {
	took  time.Duration
	bytes outboard.Bytes // of its result
}

// graph has the calls of a workflow, and the results that each takes from other calls.
type graph struct {
	known map[string]history // by path
	paths []string
	calls []string // the functions
	steps []placement.Step
	// inputs counts those of all steps. tooLarge says that calls are left out.
	inputs   int
	tooLarge bool
}

// maxSteps and maxInputs bound a graph. The time of a search for places grows with their product:
// it takes a second here, and days for all calls that a workflow may have.
const (
	maxSteps  = 256
	maxInputs = 4096
)

// graphOf returns the graph of a workflow. It has the tasks of a loop once; a task takes the
// results of the tasks before it.
func graphOf(w *dsl.Workflow, known map[string]history) *graph {
	g := &graph{known: known}
	g.sequence("", w.Do, nil)
	return g
}

// sequence adds tasks that run one after another behind the steps of before, and returns the steps
// whose results the next task takes.
func (g *graph) sequence(above string, tasks *dsl.Tasks, before []int) []int {
	if tasks == nil {
		return before
	}
	for _, task := range tasks.List {
		before = g.task(above, task, before)
	}
	return before
}

func (g *graph) task(above string, task *dsl.Task, before []int) []int {
	path := task.Name
	if above != "" {
		path = above + "/" + task.Name
	}
	switch {
	case task.Call != nil:
		return []int{g.call(path, task.Call, before)}
	case task.Do != nil:
		return g.sequence(path, task.Do, before)
	case task.For != nil:
		return g.sequence(path, task.For.Do, before)
	case task.Try != nil:
		return g.sequence(path, task.Try.Do, before)
	case task.Fork != nil:
		var after []int
		for _, branch := range task.Fork.Branches.List {
			after = append(after, g.task(path, branch, before)...)
		}
		return after
	}
	return before
}

func (g *graph) call(path string, c *dsl.Call, before []int) int {
	if g.inputs += len(before); g.tooLarge || len(g.steps) == maxSteps || g.inputs > maxInputs {
		g.tooLarge = true
		return max(0, len(g.steps)-1)
	}
	s := placement.Step{Name: path, Work: g.known[path].took}
	for _, from := range before {
		s.Inputs = append(s.Inputs, placement.Input{From: from, Bytes: g.known[g.paths[from]].bytes})
	}
	g.paths, g.calls, g.steps = append(g.paths, path), append(g.calls, c.Function), append(g.steps, s)
	return len(g.steps) - 1
}

// runSuffix is the part of a path that tells one run of a task from another.
var runSuffix = lazyregexp.New(`(\[\d+\]|#\d+|@\d+|!)+(/|$)`)

// taskPath returns the path of a task from the path of one of its runs.
func taskPath(path string) string { return runSuffix.ReplaceAllString(path, "$2") }
