package tenant

import (
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A step that runs has the node where it does.
func TestRunningStepHasNode(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: one\nfunctions: {f: {module: guest.wasm, limits: {deadline: 5m}}}\nworkflows: {w: w.yaml}\n", map[string]string{
		"w.yaml": "document: {dsl: '1.0.0', namespace: one, name: w, version: '1.0.0'}\ndo:\n  - first: {call: f, with: {body: sleep 5m}}\n  - second: {call: f}\n",
	})
	var e client.Execution
	if err := b.ask("POST", "/v1/apps/one/workflows/w/executions?id=mine", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool {
		err := b.ask("GET", "/v1/apps/one/executions/mine", nil, &e)
		return err == nil && len(e.Steps) == 1 && e.Steps[0].State == client.StateRunning && e.Steps[0].Node == "harbour"
	})
	if err := b.ask("POST", "/v1/apps/one/executions/mine/cancel", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { return len(b.tenant.steps.nodes.of("one/mine")) == 0 })
}

// A step that ends after it has begun once more takes nothing away.
func TestStepNodes(t *testing.T) {
	var u stepNodes
	first := u.add("a/b", "/do/0", "harbour")
	second := u.add("a/b", "/do/0", "dinghy")
	third := u.add("a/b", "/do/1", "buoy")
	first()
	third()
	if got := u.of("a/b"); len(got) != 1 || got["/do/0"] != outboard.NodeID("dinghy") {
		t.Errorf("got %v", got)
	}
	if second(); len(u.steps) != 0 {
		t.Errorf("left: %v", u.steps)
	}
}
