//go:build !amd64

package cost

// hasKernels reports whether this processor has instructions for several lanes at a time.
func hasKernels() bool { return false }

func (k *block) serveFast(free, after, done *vector, p *blockProfile, o *op) {
	k.serveOne(free, after, done, p, o)
}

func raiseFast(to, from *vector) { raise(to, from) }
