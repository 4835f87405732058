package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/outboard-run/outboard/bench/paired"
)

// writeDocument writes the summary of each suite, the sub-tests that differ, and all sub-tests.
// programs is the number of programs that the suites have: an interrupted run has rows of the first
// ones only.
func writeDocument(w io.Writer, programs int, rows []row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance\n\n%s.\n\n", paired.Machine())
	b.WriteString("`make conformance` writes this page: OpenCL test suites on the local driver, on a device that\n" +
		"is borrowed over shared memory, and on one of another node (TCP with TLS). A sub-test with the\n" +
		"outcome \"none\" was not reached: its program crashed, or took too long. A dash stands for a\n" +
		"program without sub-tests.\n\n")
	writeSummary(&b, rows)
	if ran := countPrograms(rows); ran < programs {
		fmt.Fprintf(&b, "\nThe run was ended early: %d of %d programs ran.\n", ran, programs)
	}
	if different := differing(rows); len(different) > 0 {
		b.WriteString("\n## Sub-tests that pass locally and not borrowed\n\n")
		writeRows(&b, different)
	}
	b.WriteString("\n## All sub-tests\n\n")
	writeRows(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

// countPrograms counts the programs of rows, which are in the order of the runs.
func countPrograms(rows []row) (n int) {
	for i := range rows {
		if i == 0 || rows[i].program != rows[i-1].program || rows[i].suite != rows[i-1].suite {
			n++
		}
	}
	return n
}

// writeSummary writes how many sub-tests of each suite pass.
func writeSummary(b *strings.Builder, rows []row) {
	b.WriteString("| suite | sub-tests | pass locally | pass over shared memory | pass over the network |\n|---|---|---|---|---|\n")
	for len(rows) > 0 {
		n := 0
		var counts [len(ways)]int
		for ; n < len(rows) && rows[n].suite == rows[0].suite; n++ {
			for i, outcome := range rows[n].outcomes {
				if outcome == passed {
					counts[i]++
				}
			}
		}
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d |\n", rows[0].suite, n, counts[0], counts[1], counts[2])
		rows = rows[n:]
	}
}

func writeRows(b *strings.Builder, rows []row) {
	fmt.Fprintf(b, "| suite | program | sub-test | %s |\n|---|---|---|---|---|---|\n", strings.Join(ways[:], " | "))
	for i := range rows {
		r := &rows[i]
		test := strings.ReplaceAll(r.test, "|", `\|`)
		if test == "" {
			test = "-"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.suite, r.program, test, strings.Join(r.outcomes[:], " | "))
	}
}
