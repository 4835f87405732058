package tenant

import (
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// A step's instance is made when the workflow's policy says: lazily by the step itself,
// otherwise before it.
func TestLaunches(t *testing.T) {
	flow := "document: {dsl: '1.0.0', namespace: one, name: w, version: '1.0.0'}\ndo:\n  - slow: {call: f, with: {body: sleep 200ms}}\n  - quick: {call: g, with: {body: json x}}\n"
	for policy, want := range map[placement.Policy]string{placement.Lazy: "clone", placement.Eager: "reset", placement.Nimble: "reset"} {
		t.Run(policy.String(), func(t *testing.T) {
			b := openTenant(t)
			b.mustDeploy("app: one\nfunctions: {f: {module: guest.wasm}, g: {module: guest.wasm}}\nworkflows: {w: {file: w.yaml, launch: "+policy.String()+"}}\n", map[string]string{"w.yaml": flow})
			b.execute()
			v := b.tenant.apps.Current("one")
			b.eventually(func() bool { return b.tenant.planner.Ready("one", v.Number, v.Workflows["w"]) })
			for _, f := range v.Functions {
				f.Trim(0)
			}
			if e := b.execute(); e.Steps[1].Start != want {
				t.Errorf("the second step began with a %s, want a %s", e.Steps[1].Start, want)
			}
		})
	}
}

// execute runs the workflow to its end.
func (b *bench) execute() client.Execution {
	b.t.Helper()
	var e client.Execution
	if err := b.ask("POST", "/v1/apps/one/workflows/w/executions?wait=true", struct{}{}, &e); err != nil {
		b.t.Fatal(err)
	}
	if e.State != client.StateCompleted || len(e.Steps) != 2 {
		b.t.Fatalf("got %+v", e)
	}
	return e
}

// Functions that were not called for a while keep no instances.
func TestTrim(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: one\nfunctions: {f: {module: guest.wasm}}\n", nil)
	b.mustCall("one/f", "echo x", "x")
	f := b.tenant.apps.Current("one").Functions["f"]
	before := trimIdle(b.tenant.apps, nil)
	if f.Cold() {
		t.Error("a function that was called just now has no instance any more")
	}
	if trimIdle(b.tenant.apps, before); !f.Cold() {
		t.Error("an idle function keeps its instance")
	}
}
