package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/accel/opencl/cltest"
)

// differential are the programs of package cltest.
var differential struct {
	sync.Mutex
	suite *cltest.Suite
}

// differentialSuite builds the programs once. What they print over the local driver is known once,
// too.
func differentialSuite(t *testing.T) *cltest.Suite {
	t.Helper()
	differential.Lock()
	defer differential.Unlock()
	if differential.suite == nil {
		dir := filepath.Join(scratch(), "differential")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		differential.suite = cltest.BuildIn(t, dir)
	}
	return differential.suite
}

// Some of our own programs compare objects, commands and their order with the local driver, one from
// harbour and the next from dinghy.
func TestDifferential(t *testing.T) {
	sharesDeviceFirst(t)
	compareAlternately(t, func(name string) bool { return slices.Contains([]string{"map", "memory", "order", "thread"}, name) }, "harbour", "dinghy")
}

// All programs compare every corner of OpenCL.
func TestDifferentialOfAllPrograms(t *testing.T) {
	sharesDevice(t)
	compareAlternately(t, fewSessions, "harbour", "dinghy")
}

// The other way round.
func TestDifferentialFromOtherNode(t *testing.T) {
	sharesDevice(t)
	compareAlternately(t, fewSessions, "dinghy", "harbour")
}

func fewSessions(program string) bool { return manySessions[program] == "" }

// compareAlternately runs programs on a shared pool, each from another node than the one before.
func compareAlternately(t *testing.T, which func(program string) bool, nodes ...string) {
	t.Helper()
	suite := differentialSuite(t)
	programs := map[string][]string{}
	for i, name := range slices.DeleteFunc(suite.Programs(), func(name string) bool { return !which(name) }) {
		node := nodes[i%len(nodes)]
		programs[node] = append(programs[node], name)
	}
	for _, node := range nodes {
		compareBorrowed(t, shared(t), suite, node, programs[node])
	}
}

// manySessions are the programs each of whose cases has sessions of its own, with a case that launches
// all their kernels in one session.
var manySessions = map[string]string{"process": "spawn", "signal": "all_blocked"}

// The programs with many sessions find their kernels compiled. One uses a device over shared memory, the
// other one over the network.
func TestDifferentialOfManySessions(t *testing.T) {
	beside(t)
	compareManySessions(t, map[string]string{"signal": "harbour", "process": "dinghy"})
}

// The other way round.
func TestDifferentialOfManySessionsFromOtherNode(t *testing.T) {
	beside(t)
	compareManySessions(t, map[string]string{"process": "harbour", "signal": "dinghy"})
}

// compareManySessions runs programs of manySessions on a pool of their own, each from a node.
func compareManySessions(t *testing.T, from map[string]string) {
	t.Helper()
	suite := differentialSuite(t)
	r := own(t, rig.Options{Nodes: pair()})
	for program, node := range from {
		fillCache(t, r, node, suite.Path(program), "-case", manySessions[program])
	}
	waitForCompileSteps(t, r.Node("harbour"))
	for program, node := range from {
		compareBorrowed(t, r, suite, node, []string{program})
	}
}

// compareBorrowed runs programs from a node of a pool.
func compareBorrowed(t *testing.T, r *rig.Rig, suite *cltest.Suite, node string, programs []string) {
	t.Helper()
	t.Run(node, func(t *testing.T) {
		suite.Compare(t, cltest.Options{InTurn: true, Differs: differs(), Programs: programs, Through: func(cmd *exec.Cmd) {
			run := r.Node(node).Command(t.Context(), append([]string{"run", "--memory", "2GiB", "--timeout", patience.String(), "--", cmd.Path}, cmd.Args[1:]...)...)
			cmd.Path, cmd.Args = run.Path, run.Args
			cmd.Env = append(cmd.Environ(), "OUTBOARD_DATA="+r.Node(node).Data())
		}})
	})
}

// differs are the cases in which a borrowed device may do otherwise, and why.
func differs() map[string]string {
	const unchecked = "PoCL does not check it; through us the specification's error comes back"
	return map[string]string{
		"program/include_spaced":                             "PoCL finds no header below a path with a space; through us it does",
		"program/compile_link kernel of compiled":            "PoCL looks for the kernel before it looks whether there is an executable",
		"program/intermediate create":                        unchecked,
		"program/intermediate nothing":                       unchecked,
		"program/intermediate constant":                      unchecked,
		"memory/info image query of a buffer":                unchecked,
		"image/refused unknown order":                        unchecked,
		"image/refused unknown type":                         unchecked,
		"image/refused width 0":                              unchecked,
		"image/refused height 0":                             unchecked,
		"image/refused too wide":                             unchecked,
		"image/refused pitch":                                unchecked,
		"image/refused buffer":                               unchecked,
		"image/transfer_refused region with 0":               unchecked,
		"image/transfer_refused row pitch too small":         unchecked,
		"image/transfer_refused read as buffer":              unchecked,
		"image/from_buffer 1d_buffer larger than its buffer": unchecked,
		"image/samplers unknown address":                     unchecked,
		"image/samplers unknown filter":                      unchecked,
	}
}
