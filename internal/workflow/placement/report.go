package placement

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/outboard-run/outboard"
)

// Named is a graph with a name, for a report.
type Named struct {
	Name  string
	Steps []Step
}

// Graphs returns the graphs of the report.
func Graphs() []Named {
	return []Named{
		{"chain", chainGraph()}, {"diamond", diamondGraph()}, {"map-reduce", mapReduceGraph()}, {"query 95", queryGraph()},
	}
}

const (
	second   = time.Second
	gigabyte = 1e9
)

// chainGraph returns a chain of five steps, each of which consumes the output of the one before.
func chainGraph() []Step {
	steps := []Step{{Name: "read", Work: 4 * second, Memory: gigabyte, Emits: WhileWorking}}
	for i, name := range []string{"resize", "blur", "encode", "store"} {
		steps = append(steps, Step{
			Name: name, Inputs: []Input{{From: i, Takes: 2 * second}}, Work: second, Memory: gigabyte, Emits: WhileWorking,
		})
	}
	return steps
}

// diamondGraph returns a graph with a short and a long path to the same step.
func diamondGraph() []Step {
	return []Step{
		{Name: "split", Work: 2 * second, Memory: gigabyte},
		{Name: "short", Inputs: []Input{{From: 0, Takes: second}}, Work: second, Memory: gigabyte},
		{Name: "long", Inputs: []Input{{From: 0, Takes: second}}, Work: 12 * second, Memory: 2 * gigabyte},
		{Name: "join", Inputs: []Input{{From: 1, Takes: 5 * second}, {From: 2, Takes: second}}, Work: 2 * second, Memory: 4 * gigabyte},
	}
}

// mapReduceGraph returns mappers of different durations, and reducers that consume from each.
func mapReduceGraph() []Step {
	const mappers, reducers = 8, 4
	var steps []Step
	for i := range mappers {
		steps = append(steps, Step{Name: fmt.Sprintf("map-%d", i), Work: time.Duration(5+3*i) * second, Memory: gigabyte, Emits: WhileWorking})
	}
	for i := range reducers {
		r := Step{Name: fmt.Sprintf("reduce-%d", i), Work: 4 * second, Memory: 2 * gigabyte}
		for m := range mappers {
			r.Inputs = append(r.Inputs, Input{From: m, Takes: second})
		}
		steps = append(steps, r)
	}
	last := Step{Name: "collect", Work: second, Memory: gigabyte}
	for i := range reducers {
		last.Inputs = append(last.Inputs, Input{From: mappers + i, Takes: second / 2})
	}
	return append(steps, last)
}

// queryGraph returns a graph in the shape of query 95 of TPC-DS: a large table is joined with
// itself and with returns, small ones filter it, and the rest is counted. The times are invented;
// only the shape is that of the query.
func queryGraph() []Step {
	scan := func(name string, takes time.Duration, memory float64) Step {
		return Step{Name: name, Work: takes, Memory: gigabyte, Emits: WhileWorking}.holding(memory)
	}
	join := func(name string, work time.Duration, memory float64, inputs ...Input) Step {
		return Step{Name: name, Inputs: inputs, Work: work, Memory: gigabyte}.holding(memory)
	}
	return []Step{
		scan("web_sales 1", 20*second, 2),
		scan("web_sales 2", 22*second, 2),
		scan("web_returns", 9*second, 1),
		scan("date_dim", 2*second, 0.5),
		scan("customer_address", 4*second, 0.5),
		scan("web_site", second, 0.5),
		join("other warehouse", 6*second, 4, Input{From: 0, Takes: 8 * second}, Input{From: 1, Takes: 8 * second}),
		join("returned", 3*second, 3, Input{From: 2, Takes: 3 * second}, Input{From: 6, Takes: 4 * second}),
		join("narrow", 2*second, 3,
			Input{From: 1, Takes: 6 * second}, Input{From: 3, Takes: second / 2}, Input{From: 4, Takes: second}, Input{From: 5, Takes: second / 2}),
		join("semi-join", 4*second, 3, Input{From: 8, Takes: 3 * second}, Input{From: 6, Takes: 4 * second}, Input{From: 7, Takes: 2 * second}),
		join("count", second, 1, Input{From: 9, Takes: second}),
	}
}

func (s Step) holding(gigabytes float64) Step {
	s.Memory = outboard.Bytes(gigabytes * gigabyte)
	return s
}

// Row compares the policies on one graph.
type Row struct {
	Graph  string
	Steps  int
	Policy Policy
	Outcome
}

// Compare runs all policies on each graph.
func Compare(graphs []Named) ([]Row, error) {
	var rows []Row
	for _, g := range graphs {
		for _, p := range []Policy{Lazy, Eager, Nimble} {
			launch, err := Launch(p, g.Steps)
			if err != nil {
				return nil, fmt.Errorf("graph %s: %w", g.Name, err)
			}
			out, err := Simulate(g.Steps, launch)
			if err != nil {
				return nil, fmt.Errorf("graph %s: %w", g.Name, err)
			}
			rows = append(rows, Row{g.Name, len(g.Steps), p, out})
		}
	}
	return rows, nil
}

// Report writes a Markdown table: completion and GB-seconds of the three policies on
// each graph, on the virtual clock.
func Report(w io.Writer, graphs []Named) error {
	rows, err := Compare(graphs)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(table, "| graph\t| steps\t| launch\t| completion\t| GB-seconds\t| idle\t|")
	fmt.Fprintln(table, "|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		fmt.Fprintf(table, "| %s\t| %d\t| %v\t| %.1f s\t| %.1f\t| %.1f s\t|\n", r.Graph, r.Steps, r.Policy, r.Completion.Seconds(), r.GBSeconds, r.idle().Seconds())
	}
	return table.Flush()
}

// idle returns the total time that the steps waited.
func (o *Outcome) idle() (total time.Duration) {
	for _, s := range o.Steps {
		total += s.Idle
	}
	return total
}
