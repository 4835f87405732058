package e2e

import (
	"os/exec"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/opencl/cltest"
)

// Our own programs compare every corner of OpenCL with the local driver.
func TestDifferential(t *testing.T) {
	suite := cltest.Build(t)
	r := shared(t)
	for _, node := range []string{"harbour", "dinghy"} {
		t.Run(node, func(t *testing.T) {
			suite.Compare(t, cltest.Options{Through: func(cmd *exec.Cmd) {
				run := r.Node(node).Command(t.Context(), append([]string{"run", "--memory", "2GiB", "--", cmd.Path}, cmd.Args[1:]...)...)
				cmd.Path, cmd.Args = run.Path, run.Args
				cmd.Env = append(cmd.Environ(), "OUTBOARD_DATA="+r.Node(node).Data())
			}})
		})
	}
}
