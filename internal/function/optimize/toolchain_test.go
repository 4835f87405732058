package optimize

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// verifiedToolchains are the releases of Go whose output the passes marked "Go" in the package
// documentation were verified for.
var verifiedToolchains = []string{"go1.26"}

const howToVerify = `the passes marked "Go" were verified for %s and this is %s. They rely on the following; compare
$(go env GOROOT)/src/cmd/internal/obj/wasm/wasmobj.go and cmd/compile/internal/wasm/ssa.go with the last verified
release, run TestConformanceGo (-tags conformance) and "make bench-function", then add the release to
verifiedToolchains:
  - the stack pointer is global 0 between functions and local 1 in a function, whose parameter is the resume point;
  - a function with jumps is one loop around a br_table over blocks, and a jump is "i32.const; local.set; br" to it;
  - a resume point lies behind each CALL and behind no CALLNORESUME, the only call that is allowed in a block;
  - a return address is (function << 16 | resume point), stored as one i64 below the stack pointer before the call,
    and the first function is 0x1000;
  - behind a call the stack pointer is read again, and a function that unwinds returns 1;
  - a recovered panic resumes at the call of runtime.deferreturn;
  - the first 4 KiB of the memory are unused (runtime/mem_wasm.go, cmd/link/internal/wasm).`

// TestToolchain holds what the passes rely on to the releases that it was verified for.
func TestToolchain(t *testing.T) {
	release := releaseOf(runtime.Version())
	if !slices.Contains(verifiedToolchains, release) {
		t.Fatalf(howToVerify, strings.Join(verifiedToolchains, ", "), release)
	}
	module := build(t, "build", "./testdata/unwind")
	m, err := parse(module)
	if err != nil {
		t.Fatal(err)
	}
	if !m.fromGo() || !bytes.Contains(m.producers, []byte(release)) {
		t.Fatalf("the producers section does not name Go and %s: %q", release, m.producers)
	}
	bodies, ok := m.bodies()
	if !ok {
		t.Fatal("the code section is malformed")
	}
	loops, dispatch, frames := 0, 0, 0
	for i, body := range bodies {
		f := newBodyOptimizer(m)
		f.budget.limit = 1 << 40
		if bytes.Contains(body, []byte{opLoop, typeVoid, opBlock, typeVoid, opBlock, typeVoid}) {
			loops++
		}
		if _, ok := f.matchDispatchLoop(body); ok {
			dispatch++
		}
		params := m.params[m.typeOf[i]]
		if a, _ := f.newAddressFolder(body, params); a != nil && a.beginFrame(params) {
			frames++
		}
	}
	// Of the functions of a program of Go, these shares have the forms.
	if 10*dispatch < 9*loops || 10*frames < 7*len(bodies) {
		t.Errorf("of %d functions %d have a dispatch loop, %d of which match, and %d a stack pointer that is understood", len(bodies), loops, dispatch, frames)
		t.Errorf(howToVerify, strings.Join(verifiedToolchains, ", "), release)
	}
}

// releaseOf cuts the patch level: "go1.26.8" is "go1.26".
func releaseOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// TestUnitsOfWork bounds what Go's code takes well below the budget.
func TestUnitsOfWork(t *testing.T) {
	module := build(t, "build", "./testdata/unwind")
	r, err := Module(module, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := parse(module)
	if err != nil {
		t.Fatal(err)
	}
	if perByte := r.Work / int64(len(m.sections[wasmbin.SectionCode])); perByte > workPerByte/2 {
		t.Errorf("%d units of work a byte: the budget is %d", perByte, workPerByte)
	}
	bodies, _ := m.bodies()
	_, work := m.runPasses(bodies)
	t.Logf("%d bytes, %d units", len(module), work)
	for i, body := range bodies {
		f := newBodyOptimizer(m)
		f.optimize(body, m.params[m.typeOf[i]], true)
		if f.budget.used > f.budget.limit/2 {
			t.Errorf("function %d of %d bytes: %d units, and the budget is %d", i, len(body), f.budget.used, f.budget.limit)
		}
	}
}
