package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app"
)

// A process reports its progress to other processes and on the local API; a node that does not
// answer is named.
func TestProgressOfNodes(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nfunctions: {cart: {module: guest.wasm}}\n", nil)
	progress := peerHandler{b.tenant}.Progress()
	if diff := cmp.Diff(progress, map[string]app.Progress{"shop": {Built: 1, Serving: 1}}); diff != "" {
		t.Error(diff)
	}
	b.tenant.members.Set([]outboard.Node{{ID: "harbour", Boot: "1"}, {ID: "dinghy", Boot: "1"}})
	want := []client.AppNode{
		{Node: "dinghy", State: client.AppSilent, Reason: "node dinghy: this process has no node that could reach it"},
		{Node: "harbour", State: client.AppReady, Serves: 1},
	}
	var nodes []client.AppNode
	if err := b.ask("GET", "/v1/apps/shop/nodes", nil, &nodes); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nodes, want); diff != "" {
		t.Error(diff)
	}
	var all []client.App
	if err := b.ask("GET", "/v1/apps?nodes=true", nil, &all); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if diff := cmp.Diff(all[0].Nodes, want); diff != "" {
		t.Error(diff)
	}
	var plain []client.App
	if err := b.ask("GET", "/v1/apps", nil, &plain); err != nil || plain[0].Nodes != nil {
		t.Errorf("the nodes were not asked for: %+v, %v", plain[0].Nodes, err)
	}
}
