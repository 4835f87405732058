package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/outboard-run/outboard/bench/suite"
)

// The outcomes of a sub-test. Suites have others, too, such as a warning.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
	// noOutcome is that of a sub-test that a program did not reach: it crashed, or took too long.
	noOutcome = "none"
)

// A program is a test program of a suite: it runs one or more sub-tests.
type program struct {
	suite.Program
	suite, name string
	// outcomes returns the outcome of each sub-test that the output reports, by its name; the name
	// is empty for a program without sub-tests.
	outcomes func(suite.Result) map[string]string
}

// A row has the outcomes of one sub-test, one for each of ways.
type row struct {
	suite, program, test string
	outcomes             [len(ways)]string
}

// differs reports whether the sub-test passes locally and not borrowed.
func (r *row) differs() bool {
	return r.outcomes[0] == passed && (r.outcomes[1] != passed || r.outcomes[2] != passed)
}

func differing(rows []row) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.differs() })
}

// runAll runs the programs one after another, each on all ways to the device, until ctx is done.
func runAll(ctx context.Context, tests []program, launchers [len(ways)]suite.Launcher) (rows []row) {
	for i, p := range tests {
		all := p.run(ctx, launchers)
		if ctx.Err() != nil {
			break // the last runs were cut short
		}
		fmt.Fprintf(os.Stderr, "%d of %d: %s: %d sub-tests, %d differ\n", i+1, len(tests), p.name, len(all), len(differing(all)))
		rows = append(rows, all...)
	}
	return rows
}

// run returns a row for each sub-test that any of the runs reports, in the order of their names.
func (p *program) run(ctx context.Context, launchers [len(ways)]suite.Launcher) (rows []row) {
	var results [len(ways)]map[string]string
	names := map[string]bool{}
	for i, launcher := range launchers {
		results[i] = p.outcomes(p.Run(ctx, launcher, ""))
		for name := range results[i] {
			names[name] = true
		}
	}
	if len(names) == 0 {
		names[""] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r := row{suite: p.suite, program: p.name, test: name}
		for i := range results {
			if r.outcomes[i] = results[i][name]; r.outcomes[i] == "" {
				r.outcomes[i] = noOutcome
			}
		}
		rows = append(rows, r)
	}
	return rows
}
