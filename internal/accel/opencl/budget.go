package opencl

import (
	"math"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// Estimates of the memory of this process that objects and commands occupy, in the worker and in
// known drivers. They err on the high side.
const (
	objectCost  = 512
	commandCost = 1 << 10
	programCost = 256 << 10 // compiled, with its log and its kernels
)

// hostSlack is the host memory that a session may use beyond its lease's memory, so that a session
// with hardly any device memory can create objects.
const hostSlack = 64 << 20

// budget bounds the host memory that a client can make the worker allocate: staging memory,
// objects, commands that are not known to be done.
type budget struct {
	limit int64
	used  atomic.Int64
}

// hostLimit returns the budget of a session that may use memory bytes of the device: the same
// amount of host memory, but at most a quarter of the machine's.
func hostLimit(memory uint64) outboard.Bytes {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if unix.Sysinfo(&info) == nil {
		machine = product(info.Totalram, uint64(info.Unit))
	}
	return outboard.Bytes(min(memory, machine/4) + hostSlack)
}

// reserve adds n bytes if the limit allows. A refused reservation is never counted, not even for a
// moment: another goroutine's smaller reservation would be refused for it.
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

// add counts n bytes that are allocated already.
func (b *budget) add(n int64) { b.used.Add(n) }

func (b *budget) release(n int64) { b.used.Add(-n) }

// product multiplies sizes that a client sent, saturating at the largest number.
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
