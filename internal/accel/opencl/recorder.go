package opencl

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// recorder writes a recipe of every program and kernel that the session has its driver compile, for
// the compile step that fills the program's cache after the session. A nil recorder records
// nothing. Only the dispatcher uses it.
type recorder struct {
	out io.Writer
	// known are the keys of recipes that need not be recorded.
	known map[string]bool
	// launches reports that the driver compiles at launch.
	launches bool
	left     int // bytes that may still be written
	kept     int // bytes of sources

	sources  map[uint64][]byte // of programs that are not built, by id
	programs map[uint64]string // keys by id
	kernels  map[uint64]*recordedKernel
}

// recordedKernel is a kernel with the state that determines how the driver compiles its launches.
type recordedKernel struct {
	program, name string
	args          []ArgRecipe
	last          launchSizes
	seen          map[launchSizes]bool
}

// launchSizes distinguish the launches for which a driver compiles a kernel anew.
type launchSizes struct {
	dims          uint32
	local, global [3]uint64 // global: only without a local size
	offset, large bool
}

// maxLaunches bounds the recorded launches of a kernel.
const maxLaunches = 64

func newRecorder(out io.Writer, known map[string]bool, launches bool) *recorder {
	return &recorder{
		out: out, known: known, launches: launches, left: maxRecipes,
		sources: map[uint64][]byte{}, programs: map[uint64]string{}, kernels: map[uint64]*recordedKernel{},
	}
}

// write records a recipe that is not known yet.
func (r *recorder) write(recipe Recipe) {
	if r.known[recipe.Key] {
		return
	}
	r.known[recipe.Key] = true
	line, err := json.Marshal(recipe)
	if err != nil || len(line) > maxRecipe || len(line) >= r.left {
		return
	}
	r.left -= len(line) + 1
	if _, err := r.out.Write(append(line, '\n')); err != nil {
		r.left = 0 // the only effect is a cold cache next time
	}
}

// source keeps the source of a program until it is built.
func (r *recorder) source(program uint64, source []byte) {
	if r == nil || len(source) > maxRecipe/2 || r.kept+len(source) > maxKeptSources {
		return
	}
	r.kept += len(source)
	r.sources[program] = slices.Clone(source)
}

// build records how a program is built.
func (r *recorder) build(program uint64, options text, includes []byte) {
	if r == nil || r.sources[program] == nil {
		return
	}
	p := &ProgramRecipe{Source: r.sources[program], Includes: includes}
	if options.present {
		p.Options = &options.value
	}
	key := keyOf(p.Source, []byte(options.value), includes)
	r.programs[program] = key
	r.write(Recipe{Key: key, Program: p})
}

// binaries records that a program's binaries are needed.
func (r *recorder) binaries(program uint64) {
	if r == nil || !r.launches || r.programs[program] == "" {
		return
	}
	key := r.programs[program]
	r.write(Recipe{Key: keyOf([]byte(key), []byte("binaries")), Binaries: key})
}

// observe records the creation of a kernel, a call that no other part intercepts.
func (r *recorder) observe(m *session.Message) {
	if r == nil || m.Op != opClCreateKernel || !r.launches {
		return
	}
	var a argsClCreateKernel
	if a.decode(m.Body) != nil {
		return
	}
	if key := r.programs[a.Program]; key != "" {
		r.kernels[a.Result] = &recordedKernel{program: key, name: a.KernelName.value, seen: map[launchSizes]bool{}}
	}
}

func (r *recorder) setArg(a *argsClSetKernelArg) {
	if r == nil || !r.launches {
		return
	}
	k := r.kernels[a.Kernel]
	if k == nil || a.ArgIndex >= maxRecipeArgs || a.ArgSize > maxArgSize {
		return
	}
	if n := int(a.ArgIndex) + 1; n > len(k.args) {
		k.args = append(k.args, make([]ArgRecipe, n-len(k.args))...)
	}
	form := a.Form
	if form == formShared {
		form = formMem // drivers compile a kernel alike for both
	}
	k.args[a.ArgIndex] = ArgRecipe{form, a.ArgSize}
}

// smallGrid is the number of work items in a dimension from which PoCL compiles for large
// launches.
const smallGrid = 1 << 16

func (r *recorder) launch(a *argsClEnqueueNDRangeKernel) {
	if r == nil || !r.launches {
		return
	}
	k := r.kernels[a.Kernel]
	if k == nil || a.WorkDim == 0 || a.WorkDim > 3 || len(a.GlobalWorkSize) < int(a.WorkDim) {
		return
	}
	s := launchSizes{dims: a.WorkDim}
	for i := range int(a.WorkDim) {
		s.large = s.large || a.GlobalWorkSize[i] >= smallGrid
		s.offset = s.offset || i < len(a.GlobalWorkOffset) && a.GlobalWorkOffset[i] != 0
		if a.LocalWorkSize != nil {
			s.local[i] = a.LocalWorkSize[i]
		} else {
			s.global[i] = a.GlobalWorkSize[i]
		}
	}
	if s == k.last || k.seen[s] || len(k.seen) >= maxLaunches {
		return
	}
	k.last, k.seen[s] = s, true
	r.writeLaunch(k, a, s)
}

func (r *recorder) writeLaunch(k *recordedKernel, a *argsClEnqueueNDRangeKernel, s launchSizes) {
	n := a.WorkDim
	l := &LaunchRecipe{Program: k.program, Kernel: k.name, Args: k.args, Global: a.GlobalWorkSize[:n]}
	if a.GlobalWorkOffset != nil {
		l.Offset = a.GlobalWorkOffset[:n]
	}
	if a.LocalWorkSize != nil {
		l.Local = a.LocalWorkSize[:n]
	}
	r.write(Recipe{Key: keyOf([]byte(k.program), []byte(k.name), fmt.Append(nil, s)), Launch: l})
}

func (r *recorder) forgetProgram(id uint64) {
	if r != nil {
		r.kept -= len(r.sources[id])
		delete(r.sources, id)
		delete(r.programs, id)
	}
}

func (r *recorder) forgetKernel(id uint64) {
	if r != nil {
		delete(r.kernels, id)
	}
}
