package e2e

import (
	"os/exec"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/accel/opencl/cltest"
)

// The same over a second implementation of OpenCL: a node that offers oclgrind.
func TestDifferentialOclgrind(t *testing.T) {
	beside(t)
	driver := cltest.Oclgrind(t)
	suite := differentialSuite(t)
	r := own(t, rig.Options{Nodes: pair(), Env: []string{"OCL_ICD_VENDORS=" + oclgrindLibrary}})
	for _, node := range []string{"harbour", "dinghy"} {
		t.Run(node, func(t *testing.T) {
			suite.Compare(t, cltest.Options{InTurn: true, Driver: driver, Differs: oclgrindDiffers(), Skip: oclgrindDies(), Through: func(cmd *exec.Cmd) {
				run := r.Node(node).Command(t.Context(), append([]string{"run", "--timeout", patience.String(), "--", cmd.Path}, cmd.Args[1:]...)...)
				cmd.Path, cmd.Args = run.Path, run.Args
				cmd.Env = append(cmd.Environ(), "OUTBOARD_DATA="+r.Node(node).Data())
			}})
		})
	}
}

const oclgrindLibrary = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"

// oclgrindDies are the cases in which oclgrind kills its process, which is the
// worker here. The session ends then, as it should, and the cases after it fail.
func oclgrindDies() map[string]string {
	return map[string]string{
		"kernel/launch_refused": "oclgrind 21.10 divides by a local size of 0",
		"program/link_refused":  "oclgrind 21.10 crashes on programs that were not compiled",
	}
}

// oclgrindDiffers are the cases in which a borrowed oclgrind may do otherwise, and why.
func oclgrindDiffers() map[string]string {
	const (
		unchecked    = "oclgrind does not check it; through us the specification's error comes back"
		pitches      = "oclgrind ignores pitches of host memory and of images; through us they hold"
		noExecutable = "oclgrind gives the error of an unknown kernel; through us that of a program without an executable"
		argInfo      = "oclgrind answers without -cl-kernel-arg-info; through us only a program that asked for it is answered"
		mapCount     = "oclgrind does not count maps; through us they are counted"
	)
	return map[string]string{
		"image/host_pointers":            pitches,
		"image/old_creators":             pitches,
		"image/info":                     pitches,
		"image/refused":                  unchecked,
		"image/transfer_refused":         unchecked,
		"image/from_buffer":              unchecked,
		"image/formats_listed":           unchecked,
		"kernel/structs short struct":    "only oclgrind knows the size of a struct: the call was answered before, and the launch fails",
		"kernel/arg_info":                argInfo,
		"kernel/macros argument info":    argInfo,
		"kernel/group_info":              "oclgrind wants a device where the specification needs none",
		"kernel/create_refused not":      noExecutable,
		"kernel/local_memory":            unchecked,
		"map/overlapping":                mapCount,
		"map/part_of_mapped":             mapCount,
		"map/nested":                     unchecked,
		"memory/create_flags":            unchecked,
		"memory/create_refused":          unchecked,
		"memory/info":                    unchecked,
		"memory/rectangles_refused":      unchecked,
		"memory/fill pattern of":         unchecked,
		"memory/copy size 0":             unchecked,
		"memory/migrate":                 unchecked,
		"memory/sub_buffer_flags":        unchecked,
		"memory/sub_buffer_refused":      unchecked,
		"program/build_while_kernels":    unchecked,
		"program/build_error kernel of":  "oclgrind gives the error of an unknown kernel; through us that of a program without an executable",
		"program/include_relative":       "oclgrind remembers the first working directory; through us each build's own counts",
		"program/binaries_refused":       unchecked,
		"program/compile_link kernel of": noExecutable,
	}
}
