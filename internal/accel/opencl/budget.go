package opencl

import (
	"math"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// What things are taken to cost in this process's memory: what we keep, and what
// a driver is known to keep. Too much is better than too little here.
const (
	objectCost  = 512
	commandCost = 1 << 10
	programCost = 256 << 10 // compiled, with its log and its kernels
)

// hostSlack is what a session may hold beyond its lease's memory, so that one with
// hardly any can have objects.
const hostSlack = 64 << 20

// budget bounds the host memory that a client can make the worker hold:
// staging memory, objects, commands that are not known to be done.
type budget struct {
	limit int64
	used  atomic.Int64
}

// hostLimit is the budget of a session that may use memory bytes of the device: as
// much again of the host, but no more than a quarter of what the machine has.
func hostLimit(memory uint64) outboard.Bytes {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if unix.Sysinfo(&info) == nil {
		machine = product(info.Totalram, uint64(info.Unit))
	}
	return outboard.Bytes(min(memory, machine/4) + hostSlack)
}

// reserve adds n bytes if the limit allows. What it refuses is never counted, not
// even for a moment: another goroutine's smaller reservation would be refused for it.
func (b *budget) reserve(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// add counts n bytes that exist already.
func (b *budget) add(n int64) { b.used.Add(n) }

func (b *budget) release(n int64) { b.used.Add(-n) }

// product multiplies sizes that a client sent; too large is the largest number.
func product(factors ...uint64) uint64 {
	p := uint64(1)
	for _, f := range factors {
		high, low := bits.Mul64(p, f)
		if high != 0 {
			return math.MaxUint64
		}
		p = low
	}
	return p
}
