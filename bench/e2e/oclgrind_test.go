package e2e

import (
	"os/exec"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/accel/opencl/cltest"
)

// The same over a second implementation of OpenCL: a node that offers oclgrind.
func TestDifferentialOclgrind(t *testing.T) {
	driver := cltest.Oclgrind(t)
	suite := cltest.Build(t)
	r := own(t, rig.Options{Nodes: pair(), Env: []string{"OCL_ICD_VENDORS=" + oclgrindLibrary}})
	for _, node := range []string{"harbour", "dinghy"} {
		t.Run(node, func(t *testing.T) {
			suite.Compare(t, cltest.Options{Driver: driver, Differs: differsOclgrind(), Through: func(cmd *exec.Cmd) {
				run := r.Node(node).Command(t.Context(), append([]string{"run", "--memory", "2GiB", "--", cmd.Path}, cmd.Args[1:]...)...)
				cmd.Path, cmd.Args = run.Path, run.Args
				cmd.Env = append(cmd.Environ(), "OUTBOARD_DATA="+r.Node(node).Data())
			}})
		})
	}
}

const oclgrindLibrary = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"

func differsOclgrind() map[string]string { return nil }
