package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is a mistake in a manifest.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"` // from 1, in letters
	// Text describes the mistake and its remedy.
	Text string `json:"text"`
}

// String returns the problem in the form of a compiler's messages.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems are all mistakes of a manifest, in the order of their lines. They are an error if there
// is at least one.
type Problems []Problem

// Error returns a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// ordered returns the problems sorted, each once.
func (p Problems) ordered() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Text, b.Text))
	})
	return slices.Compact(p)
}
