package core

import (
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Execution is one run of a workflow. It is not safe for use by several
// goroutines.
type Execution struct {
	id       string
	workflow *dsl.Workflow
}

// New makes an execution to which nothing has happened yet.
func New(id string, w *dsl.Workflow) *Execution {
	return &Execution{id: id, workflow: w}
}

// Filter says which events a task listens for.
type Filter struct {
	With map[string]any
}
