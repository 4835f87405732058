package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
)

// A workflow calls a service whose program is connected to another node, by the descriptors that the
// program has registered.
func TestWorkflowCallsService(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	serving(t, dinghy, 1, harbour, dinghy)
	dir := t.TempDir()
	const service = "grpc.testing.TestService"
	write(t, filepath.Join(dir, "app.yaml"), []byte("app: shop\noutgoing: [{service: "+service+"}]\nworkflows: {ask: ask.yaml}\n"))
	write(t, filepath.Join(dir, "ask.yaml"), []byte("document: {dsl: '1.0.3', namespace: shop, name: ask, version: '1.0.0'}\n"+
		"do: [{a: {call: grpc, with: {method: UnaryCall, service: {name: "+service+", host: pool}, arguments: {payload: {body: aGk=}}}}}]\n"))
	if out, err := harbour.Output(t.Context(), "deploy", dir); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	out, err := harbour.Command(t.Context(), "executions", "start", "shop/ask", "--wait").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "aGk=") {
		t.Errorf("%v: %s", err, out)
	}
}
