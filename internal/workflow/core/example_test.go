package core_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// A driver that calls functions synchronously and writes no log.
func Example() {
	w, err := dsl.Parse("greet.yaml", []byte(`
document: {dsl: 1.0.0, namespace: examples, name: greet, version: 1.0.0}
do:
  - ask: {call: name}
  - greet: {set: {text: '${ "Hello \(.)" }'}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	x := core.New("app/1", w)
	next := core.Event{At: time.Now(), Started: &core.Started{}}
	for !x.Status().Over() {
		actions, err := x.Apply(next)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, a := range actions {
			switch a := a.(type) {
			case core.Call:
				fmt.Println("call", a.Function)
				next = core.Event{At: time.Now(), Step: &core.Step{Path: a.Path, Data: json.RawMessage(`"sailor"`)}}
			case core.Finish:
				fmt.Println(a.Finished.Status, string(a.Finished.Output))
			}
		}
	}
	// Output:
	// call name
	// completed {"text":"Hello sailor"}
}
