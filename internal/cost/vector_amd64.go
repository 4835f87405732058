package cost

import "golang.org/x/sys/cpu"

// The kernels of vector.go, four lanes at a time. Their results are the same to the last digit.

//go:noescape
func servePlainAVX2(free, after, done, latency *vector, cost int64)

//go:noescape
func serveAVX2(free, after, done *vector, p *blockProfile, cost, units int64)

//go:noescape
func raiseAVX2(to, from *vector)

// hasKernels reports whether this processor has the instructions.
func hasKernels() bool { return cpu.X86.HasAVX2 }

func (k *block) serveFast(free, after, done *vector, p *blockProfile, o *op) {
	if p.plain {
		servePlainAVX2(free, after, done, &p.latency, o.cost)
	} else {
		serveAVX2(free, after, done, p, o.cost, o.units)
	}
}

func raiseFast(to, from *vector) { raiseAVX2(to, from) }
