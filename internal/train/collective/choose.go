package collective

import (
	"fmt"
	"math/bits"
	"time"
)

// An Algorithm is a way to reduce elements over all ranks.
type Algorithm uint8

// The algorithms.
const (
	Ring Algorithm = iota + 1
	Halving
	Doubling
	// InOrder exchanges parts directly, so that each is reduced in the order of ranks.
	InOrder
)

var algorithms = [...]string{Ring: "ring", Halving: "halving and doubling", Doubling: "doubling", InOrder: "in order"}

func (a Algorithm) String() string {
	if a < Ring || int(a) >= len(algorithms) {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithms[a]
}

// A Link is the slowest path between two ranks of a group, as measured.
type Link struct {
	Latency   time.Duration
	Bandwidth float64 // bytes per second in each direction
}

// A Choice is the chosen algorithm and the predicted time of each algorithm.
type Choice struct {
	Algorithm Algorithm
	Predicted map[Algorithm]time.Duration
}

// Choose returns the algorithm that reduces that many bytes over n ranks in the shortest time.
//
// With latency a, bandwidth w, s bytes and p the highest power of two up to n, the ring takes
// 2(n-1)(a + s/(nw)), halving and doubling 2 log2(p) a + 2(1-1/p)s/w, doubling log2(p)(a + s/w). If
// n is not a power of two, the latter two take another two messages of s bytes.
func Choose(n, bytes int, l Link) Choice {
	a, all := l.Latency.Seconds(), 0.0
	if l.Bandwidth > 0 {
		all = float64(bytes) / l.Bandwidth
	}
	steps := bits.Len(uint(n)) - 1
	power := float64(int(1) << steps)
	fold := 0.0
	if power < float64(n) {
		fold = 2 * (a + all)
	}
	ranks := float64(n)
	seconds := map[Algorithm]float64{
		Ring:     2 * (ranks - 1) * (a + all/ranks),
		Halving:  2*float64(steps)*a + 2*(1-1/power)*all + fold,
		Doubling: float64(steps)*(a+all) + fold,
	}
	c := Choice{Algorithm: Ring, Predicted: make(map[Algorithm]time.Duration)}
	for _, algorithm := range []Algorithm{Ring, Halving, Doubling} {
		c.Predicted[algorithm] = time.Duration(seconds[algorithm] * float64(time.Second))
		if seconds[algorithm] < seconds[c.Algorithm] {
			c.Algorithm = algorithm
		}
	}
	return c
}
