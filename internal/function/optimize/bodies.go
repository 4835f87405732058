package optimize

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// The budgets of the passes. Code beyond them stays as the producer wrote it: the module runs, less
// fast. All of them depend on the file alone, so the same file always becomes the same code.
const (
	// maxOptimizedCode is how many bytes of a module's bodies are optimised: the first ones.
	maxOptimizedCode = 24 << 20
	// maxCodeGrowth is how many bytes the passes may add to a module beside a copy of its code.
	maxCodeGrowth = 1 << 20
	// workPerByte and minWork bound the work on one body, in units of about one byte that a pass
	// reads or writes. Go's code takes 10 to 20 units a byte.
	workPerByte = 64
	minWork     = 16 << 10
	// growthAllowance is by how many bytes a body may grow beyond twice its size.
	growthAllowance = 4 << 10
)

var errBudget = errors.New("the optimisation of the function takes too long")

// workBudget counts the work on one body.
type workBudget struct{ used, limit int64 }

// spend counts n units and reports whether the budget allows them.
func (b *workBudget) spend(n int) bool {
	b.used += int64(n)
	return b.used <= b.limit
}

// optimizeBodies replaces the module's code section by an optimised one, and returns the work that
// it took.
func (m *module) optimizeBodies() (work int64) {
	bodies, ok := m.bodies()
	if !ok {
		return 0
	}
	optimized, work := m.runPasses(bodies)
	growth := len(m.sections[wasmbin.SectionCode]) + maxCodeGrowth
	out := wasmbin.AppendU32(make([]byte, 0, len(m.sections[wasmbin.SectionCode])*9/8), uint32(len(bodies)))
	for i, body := range bodies {
		if more := len(optimized[i]) - len(body); optimized[i] != nil && more <= growth {
			body = optimized[i]
			growth -= more
		}
		out = append(wasmbin.AppendU32(out, uint32(len(body))), body...)
	}
	m.sections[wasmbin.SectionCode] = out
	return work
}

// runPasses optimises bodies on half of the processors, so that calls get the other half. The
// result is nil for a body that is left as it is.
func (m *module) runPasses(bodies [][]byte) (optimized [][]byte, work int64) {
	optimized = make([][]byte, len(bodies))
	last := len(bodies)
	for i, size := 0, 0; i < last; i++ {
		if size += len(bodies[i]); size > maxOptimizedCode {
			last = i
		}
	}
	fromGo := m.fromGo()
	var next, total atomic.Int64
	var workers sync.WaitGroup
	for range min(Workers(), last) {
		workers.Go(func() {
			f := newBodyOptimizer(m)
			for i := int(next.Add(1)) - 1; i < last; i = int(next.Add(1)) - 1 {
				if out := f.optimize(bodies[i], m.params[m.typeOf[i]], fromGo); !bytes.Equal(out, bodies[i]) {
					optimized[i] = bytes.Clone(out)
				}
				total.Add(f.budget.used)
			}
		})
	}
	workers.Wait()
	return optimized, total.Load()
}

// Workers returns how many goroutines prepare a module at a time: half of the processors, so that
// calls get the other half.
func Workers() int { return max(runtime.GOMAXPROCS(0)/2, 1) }

// bodies cuts the code section. It reports false if there is none or it is malformed, which the
// emitter reports later.
func (m *module) bodies() ([][]byte, bool) {
	r := &wasmbin.Reader{Data: m.sections[wasmbin.SectionCode]}
	if !r.More() {
		return nil, false
	}
	n := r.Count(2)
	if n != len(m.typeOf) {
		return nil, false
	}
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = r.Bytes(r.Count(1))
	}
	return bodies, r.Err == nil && r.Left() == 0
}

func newBodyOptimizer(m *module) *bodyOptimizer {
	return &bodyOptimizer{
		bodyScanner: bodyScanner{m: m, entryCosts: make([]entryCost, m.functions)},
		budget:      &workBudget{limit: maxBody},
	}
}

// optimize runs the passes over one body. It returns the body unchanged if they take too much work.
// The result is valid until the next call.
func (f *bodyOptimizer) optimize(body []byte, params uint32, fromGo bool) []byte {
	*f.budget = workBudget{limit: minWork + workPerByte*int64(len(body))}
	if len(body) > maxBody {
		return body
	}
	out := f.combineInstructions(body)
	if fromGo {
		out = f.foldFrameAddresses(out, params)
	}
	if loop, ok := f.matchDispatchLoop(out); ok {
		out = f.recoverControlFlow(loop, params)
	}
	out = f.lowerConditionals(out)
	if fromGo {
		out = f.foldPointerAddresses(out, params)
	}
	out = f.unrollLoops(out)
	if !f.budget.spend(0) || len(out) > min(2*len(body)+growthAllowance, maxBody) {
		return body
	}
	return out
}

// next reads one instruction within the budget.
func (f *bodyOptimizer) next() wasmbin.Instruction {
	i, _ := f.bodyScanner.next()
	f.spend(i.End - i.At)
	return i
}

// spend counts work, and sets Err when it is too much.
func (f *bodyOptimizer) spend(n int) bool {
	if !f.budget.spend(n) {
		f.Failf("%w", errBudget)
		return false
	}
	return true
}
