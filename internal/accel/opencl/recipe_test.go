package opencl

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// What is recorded of a session is what a compile step reads, once for each program and each
// size of a launch that a driver compiles for.
func TestRecorder(t *testing.T) {
	var out bytes.Buffer
	r := newRecorder(&out, map[string]bool{}, true)
	options := text{value: "-DX=1", present: true}
	for range 2 {
		r.source(3, []byte("kernel void k() {}"))
		r.build(3, options, nil)
	}
	body := (&argsClCreateKernel{Program: 3, KernelName: text{value: "k", present: true}, Result: 4}).encode(nil)
	r.observe(&message{Header: session.Header{Op: opClCreateKernel}, Body: body})
	r.setArg(&argsClSetKernelArg{Kernel: 4, ArgIndex: 1, ArgSize: 8, Form: formMem})
	for _, global := range []uint64{64, 128, smallGrid} { // the first two are of one kind
		r.launch(&argsClEnqueueNDRangeKernel{Kernel: 4, WorkDim: 1, GlobalWorkSize: []uint64{global}, LocalWorkSize: []uint64{16}})
	}
	for range 2 {
		r.binaries(3)
	}
	all, err := ReadRecipes(&out)
	if err != nil || len(all) != 4 {
		t.Fatalf("got %d recipes, %v, want a program, two launches and binaries", len(all), err)
	}
	if all[3].Binaries != all[0].Key {
		t.Errorf("binaries of %q, want %q", all[3].Binaries, all[0].Key)
	}
	if p := all[0].Program; p == nil || string(p.Source) != "kernel void k() {}" || *p.Options != "-DX=1" {
		t.Errorf("program %+v", all[0])
	}
	for _, recipe := range all[1:3] {
		if l := recipe.Launch; l == nil || l.Program != all[0].Key || l.Kernel != "k" || len(l.Args) != 2 || l.Args[1] != (ArgRecipe{formMem, 8}) {
			t.Errorf("launch %+v", recipe)
		}
	}
	// A later session of the program records nothing.
	again := newRecorder(&out, map[string]bool{all[0].Key: true}, false)
	again.source(3, []byte("kernel void k() {}"))
	again.build(3, options, nil)
	if out.Len() > 0 {
		t.Errorf("a known program was recorded: %s", out.String())
	}
}

// Recipes are bounded, whatever a program does.
func TestRecipesAreBounded(t *testing.T) {
	var out bytes.Buffer
	r := newRecorder(&out, map[string]bool{}, true)
	for i := range uint64(100) {
		r.source(i, bytes.Repeat([]byte{byte(i)}, 1<<20))
		r.build(i, text{}, nil)
	}
	if r.kept > maxKeptSources || out.Len() > maxRecipes {
		t.Errorf("%d bytes of sources are kept, %d written", r.kept, out.Len())
	}
	k := &recordedKernel{program: "p", name: "k", seen: map[launchSizes]bool{}}
	r.kernels[1] = k
	for i := range uint64(1000) {
		r.launch(&argsClEnqueueNDRangeKernel{Kernel: 1, WorkDim: 1, GlobalWorkSize: []uint64{i + 1}})
	}
	if len(k.seen) > maxLaunches {
		t.Errorf("%d launches of a kernel are recorded", len(k.seen))
	}
	for i := range uint64(100) {
		r.forgetProgram(i)
	}
	r.forgetKernel(1)
	if r.kept != 0 || len(r.sources)+len(r.programs)+len(r.kernels) != 0 {
		t.Errorf("%d bytes are kept after all is released", r.kept)
	}
	(*recorder)(nil).launch(nil) // nothing is recorded without a file
}

func FuzzReadRecipes(f *testing.F) {
	key := strings.Repeat("0", keyLength)
	f.Add([]byte(fmt.Sprintf(`{"key":%q,"program":{"source":"eA=="}}`, key)))
	f.Add([]byte(fmt.Sprintf(`{"key":%q,"launch":{"program":%q,"kernel":"k","args":[{"form":2,"size":8}],"global":[1,2],"local":[1,1]}}`, key, key)))
	f.Add([]byte("{}\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := ReadRecipes(bytes.NewReader(text))
		for _, r := range all {
			if l := r.Launch; l != nil && (len(l.Global) > 3 || l.Local != nil && len(l.Local) != len(l.Global) || len(l.Args) > maxRecipeArgs) {
				t.Errorf("accepted %+v", l)
			}
		}
	})
}
