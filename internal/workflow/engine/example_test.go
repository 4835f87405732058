package engine_test

import (
	"context"
	"fmt"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

// An engine on a pool in memory.
func Example() {
	w, err := dsl.Parse("greet.yaml", []byte(`
document: {dsl: 1.0.0, namespace: examples, name: greet, version: 1.0.0}
do:
  - greet: {call: greet, with: {body: "${ .name }"}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := enginetest.New()
	pool.Deploy("hello", "greet", w)
	functions := enginetest.Functions{F: func(_ context.Context, c engine.FunctionCall) (engine.Outcome, error) {
		return engine.Outcome{Body: fmt.Appendf(nil, "%q", "Hello "+string(c.Body))}, nil
	}}
	ctx := context.Background()
	e, err := engine.Open(ctx, pool.Node("harbour").Options(functions))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	id, err := e.Start(ctx, engine.StartRequest{App: "hello", Workflow: "greet", Name: "first", Input: []byte(`{"name": "sailor"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := e.Wait(ctx, id)
	fmt.Println(id, result.Status, string(result.Output), err)
	// Output: hello/first completed "Hello sailor" <nil>
}
