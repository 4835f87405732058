package dsl

import (
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a workflow.
type Problem struct {
	File string
	Line int
	// Text says what is wrong and what would be right.
	Text string
}

func (p Problem) Error() string {
	return p.File + ":" + strconv.Itoa(p.Line) + ": " + p.Text
}

// Problems are all that is wrong with a workflow, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Parse reads a workflow. The file's name is for errors, which are Problems.
func Parse(file string, source []byte) (*Workflow, error) {
	return nil, Problems{{File: file, Line: 1, Text: "not yet"}}
}
