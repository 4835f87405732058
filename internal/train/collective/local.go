package collective

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// localPiece is the number of bytes of each buffer that a processor works on at a time: the pieces
// of several ranks fit into its cache.
const localPiece = 64 << 10

// Local makes the call for all ranks at once, in a process that has the buffers of all ranks:
// bufs[rank]. Reductions are in the order of ranks. The buffers are as for Group.Do.
func Local(c Call, bufs [][]byte) error {
	if err := c.Check(len(bufs)); err != nil {
		return err
	}
	for rank, b := range bufs {
		if len(b) != c.Count*c.Element.Size() || !aligned(b, c.Element) {
			return fmt.Errorf("%s: the buffer of rank %d has %d bytes, or is not aligned to its elements", c, rank, len(b))
		}
	}
	l := local{call: c, bufs: bufs, n: len(bufs), size: c.Element.Size()}
	switch c.Operation {
	case AllReduce:
		l.pieces(Span{0, c.Count}, l.reduce)
	case ReduceScatter:
		l.pieces(Span{0, c.Count}, l.reduceTo)
	case AllGather:
		for rank := range bufs {
			l.pieces(part(rank, l.n, c.Count), func(s Span) { l.distribute(rank, s) })
		}
	case Broadcast:
		l.pieces(Span{0, c.Count}, func(s Span) { l.distribute(c.Root, s) })
	case AllToAll:
		l.exchange()
	case Barrier:
	default:
		return errors.ErrUnsupported
	}
	return nil
}

type local struct {
	call Call
	bufs [][]byte
	n    int
	size int // of an element
}

func (l *local) bytes(rank int, s Span) []byte { return l.bufs[rank][s.From*l.size : s.To*l.size] }

// pieces calls do for all pieces of a span, on all processors.
func (l *local) pieces(s Span, do func(Span)) {
	step := localPiece / l.size
	count := (s.Len() + step - 1) / step
	workers := min(count, runtime.GOMAXPROCS(0))
	work := func(worker int) {
		for i := worker; i < count; i += workers {
			from := s.From + i*step
			do(Span{from, min(from+step, s.To)})
		}
	}
	var others sync.WaitGroup
	for worker := 1; worker < workers; worker++ {
		others.Go(func() { work(worker) })
	}
	if workers > 0 {
		work(0)
	}
	others.Wait()
}

// sum reduces a piece of all ranks into that of rank 0.
func (l *local) sum(s Span) {
	for rank := 1; rank < l.n; rank++ {
		combine(l.bytes(0, s), l.bytes(rank, s), l.call.Element, l.call.Reduction)
	}
	if l.call.Reduction == Average && l.n > 1 {
		divide(l.bytes(0, s), l.call.Element, l.n)
	}
}

func (l *local) reduce(s Span) {
	l.sum(s)
	l.distribute(0, s)
}

// reduceTo reduces a piece and copies it to the ranks whose parts it belongs to.
func (l *local) reduceTo(s Span) {
	l.sum(s)
	for rank := 1; rank < l.n; rank++ {
		own := part(rank, l.n, l.call.Count)
		own = Span{max(own.From, s.From), min(own.To, s.To)}
		if own.Len() > 0 {
			copy(l.bytes(rank, own), l.bytes(0, own))
		}
	}
}

// distribute copies a piece of one rank to all others.
func (l *local) distribute(from int, s Span) {
	for rank := range l.n {
		if rank != from {
			copy(l.bytes(rank, s), l.bytes(from, s))
		}
	}
}

// exchange swaps part j of rank i with part i of rank j.
func (l *local) exchange() {
	aside := make([]byte, part(0, l.n, l.call.Count).Len()*l.size)
	for i := range l.n {
		for j := range i {
			a, b := l.bytes(i, part(j, l.n, l.call.Count)), l.bytes(j, part(i, l.n, l.call.Count))
			copy(aside, a)
			copy(a, b)
			copy(b, aside)
		}
	}
}
