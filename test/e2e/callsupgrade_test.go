//go:build conformance

package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
)

// A running load is calls and long streams that flow until it is told to stop.
type running struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func startLoad(t testing.TB, n *rig.Node, args ...string) *running {
	t.Helper()
	l := &running{cmd: callerAt(t, n, append([]string{"load", "-for", "1h"}, args...)...)}
	l.cmd.Stdout = &l.out
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() })
	return l
}

func (l *running) stop(t testing.TB) (r result) {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("load: %v", err)
	}
	if err := json.Unmarshal(l.out.Bytes(), &r); err != nil {
		t.Errorf("load: %v in %q", err, l.out.String())
	}
	return r
}

// Fifty upgrades of two nodes, one after the other and both at once, while programs of
// both call and have streams that last from the first upgrade to the last: no call is
// lost, no stream ends, and each old process goes while they flow.
func TestConformanceUpgrades(t *testing.T) {
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	nodes := []*rig.Node{r.Node("harbour"), r.Node("dinghy")}
	serving(t, nodes[0], 1, nodes...)
	var loads []*running
	for _, n := range nodes {
		loads = append(loads, startLoad(t, n), startLoad(t, n, "-size", "300000", "-calls", "1", "-streams", "1"))
	}
	eventually(t, "calls flow", func() bool { return len(list(t, nodes[0], "calls")) > 0 && len(list(t, nodes[1], "calls")) > 0 })
	for i := range 50 {
		for j, n := range nodes {
			if i%3 == 2 || i%2 == j {
				if out, err := n.Output(t.Context(), "upgrade"); err != nil {
					t.Fatalf("upgrade %d of %s: %v %s", i, n.Name, err, out)
				}
			}
		}
		for _, n := range nodes {
			eventually(t, n.Name+" has one process for calls", func() bool { return len(descendants(n.PID())) == 1 })
		}
	}
	for i, l := range loads {
		result := l.stop(t)
		t.Logf("load %d: %+v", i, result)
		if result.flawless(t, "load across upgrades"); result.Messages == 0 {
			t.Errorf("load %d: no message on its streams", i)
		}
	}
}
