package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

// caller is the program of test/e2e/caller.
var caller = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch(), "caller")
	out, err := exec.Command("go", "build", "-o", path, "./caller").CombinedOutput()
	if err != nil {
		return "", &exec.ExitError{Stderr: out}
	}
	return path, nil
})

// callerAt starts the caller beside a node.
func callerAt(t testing.TB, n *rig.Node, args ...string) *exec.Cmd {
	t.Helper()
	path, err := caller()
	if err != nil {
		t.Fatal(err)
	}
	cmd := n.Exec(t.Context(), path, args...)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "OUTBOARD_DATA="+n.Data())
	cmd.Stderr = os.Stderr
	return cmd
}

// serving runs a server on a node until the test ends or it is killed, and waits
// until all nodes of the rig know it.
func serving(t testing.TB, at *rig.Node, known int, nodes ...*rig.Node) *exec.Cmd {
	t.Helper()
	cmd := callerAt(t, at, "serve")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, n := range nodes {
		endpoints(t, n, known)
	}
	return cmd
}

func endpoints(t testing.TB, n *rig.Node, want int) {
	t.Helper()
	eventually(t, "the node knows the endpoints", func() bool {
		known := 0 // those of tests' programs: apps have endpoints too
		for _, e := range list(t, n, "endpoints") {
			if strings.Contains(fmt.Sprint(e["services"]), "grpc.testing.TestService") {
				known++
			}
		}
		return known == want
	})
}

// result is what the caller says of its load.
type result struct {
	Good, Wrong, Messages int64
	Failed                map[string]int64
	Causes                []string
}

// load makes calls from a node and waits for their end.
func load(t testing.TB, n *rig.Node, args ...string) result {
	t.Helper()
	cmd := callerAt(t, n, append([]string{"load"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Errorf("load: %v", err)
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Errorf("load: %v in %q", err, out.String())
	}
	return r
}

// flawless says that all calls of a load had the right answer.
func (r result) flawless(t testing.TB, what string) {
	t.Helper()
	if r.Good == 0 || r.Wrong != 0 || len(r.Failed) != 0 {
		t.Errorf("%s: %+v", what, r)
	}
}

func grpcAddr(t testing.TB, n *rig.Node) string {
	t.Helper()
	var status client.Status
	if err := json.Unmarshal([]byte(getPage(t, n, "/v1/status")), &status); err != nil {
		t.Fatal(err)
	}
	return status.GRPC
}

// Programs of two nodes call a program of one, by shared memory and by plain gRPC.
// It is killed under load: nothing is answered wrong, and another takes over.
func TestCallsBetweenNodes(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	first := serving(t, harbour, 1, harbour, dinghy)
	for name, n := range map[string]*rig.Node{"harbour": harbour, "dinghy": dinghy} {
		load(t, n, "-for", "500ms").flawless(t, "from "+name)
		load(t, n, "-for", "500ms", "-size", "300000", "-calls", "1", "-streams", "1").flawless(t, "large messages from "+name)
		load(t, n, "-for", "500ms", "-grpc", grpcAddr(t, n)).flawless(t, "plain gRPC from "+name)
	}
	serving(t, dinghy, 2, harbour, dinghy)
	var loads sync.WaitGroup
	results := make([]result, 2)
	for i, n := range []*rig.Node{harbour, dinghy} {
		loads.Go(func() { results[i] = load(t, n, "-for", "3s") })
	}
	eventually(t, "calls flow", func() bool { return len(list(t, harbour, "calls")) > 0 && len(list(t, dinghy, "calls")) > 0 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	loads.Wait()
	for i, r := range results {
		unavailable := r.Failed["Unavailable"]
		delete(r.Failed, "Unavailable")
		if r.Good == 0 || r.Wrong != 0 || len(r.Failed) != 0 {
			t.Errorf("load %d while its server died: %+v, %d unavailable", i, r, unavailable)
		}
	}
	for name, n := range map[string]*rig.Node{"harbour": harbour, "dinghy": dinghy} {
		endpoints(t, n, 1)
		load(t, n, "-for", "500ms").flawless(t, "by the other server, from "+name)
	}
}

// The commands of an operator, on calls that flow.
func TestPoliciesByCommand(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	serving(t, harbour, 1, harbour, dinghy)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	apply := func(text string) error {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := harbour.Output(t.Context(), "policies", "apply", file)
		return err
	}
	if err := apply("policies:\n- name: shut\n  services: [grpc.testing.TestService]\n  access: {default: deny, rules: [{allow: {tenants: [nobody]}}]}\n"); err != nil {
		t.Fatal(err)
	}
	denied := func() bool {
		r := load(t, dinghy, "-for", "20ms", "-calls", "1", "-streams", "0")
		return r.Good == 0 && r.Failed["PermissionDenied"] > 0
	}
	eventually(t, "calls are denied on the other node", denied)
	if err := apply("policies:\n- name: shut\n  acces: {}\n"); err == nil {
		t.Error("a file with a mistake was applied")
	}
	if !denied() {
		t.Error("a file with a mistake changed what is in force")
	}
	if err := apply("policies: []\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls pass again", func() bool {
		return load(t, dinghy, "-for", "20ms", "-calls", "1", "-streams", "0").Good > 0
	})
	if _, err := dinghy.Output(t.Context(), "policies", "rollback"); err == nil || !strings.Contains(err.Error(), "keeps no copy") {
		t.Errorf("a node that keeps no copy of the state changes the policies: %v", err)
	}
	if _, err := harbour.Output(t.Context(), "policies", "rollback"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls are denied again", denied)
}
