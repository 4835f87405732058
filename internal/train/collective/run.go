package collective

import (
	"unsafe"
)

// pieceSize is the number of bytes that are read before they are combined: they stay in the cache,
// and the next bytes arrive meanwhile.
const pieceSize = 256 << 10

// run executes the call.
func (g *Group) run(c *Call, buf []byte) error {
	a := announced{*c, g.algorithm(c)}
	number, err := g.calls.begin(a, g.n)
	if err != nil {
		return err
	}
	if err := g.peers[(g.rank+1)%g.n].announce(number, a); err != nil {
		return err
	}
	x := execution{g: g, call: c, number: number, announced: a, size: c.Element.Size(), buf: buf}
	if err := x.execute(a.algorithm); err != nil {
		return err
	}
	x.finish()
	return nil
}

// algorithm returns the algorithm of a call that reduces.
func (g *Group) algorithm(c *Call) Algorithm {
	switch {
	case c.Ordered:
		return InOrder
	case c.Loss > 0, c.Store:
		return Ring
	case c.Operation == AllReduce:
		return Choose(g.n, c.Count*c.Element.Size(), g.link).Algorithm
	}
	return Ring
}

// An execution is a running call.
type execution struct {
	g         *Group
	call      *Call
	number    uint64
	announced announced
	size      int // of an element
	buf       []byte
}

func (x *execution) execute(a Algorithm) error {
	g, c := x.g, x.call
	switch c.Operation {
	case AllReduce:
		switch {
		case c.Loss > 0 && g.paths != nil:
			return x.datagramAllReduce()
		case c.Loss > 0:
			return x.lossyAllReduce()
		case c.Store:
			return x.storeAllReduce()
		}
		switch a {
		default:
			return x.steps(RingAllReduce(g.rank, g.n, c.Count))
		case InOrder:
			if err := x.reduceInOrder(); err != nil {
				return err
			}
			return x.steps(RingAllGather(g.rank, g.n, c.Count))
		case Doubling:
			return x.steps(DoublingAllReduce(g.rank, g.n, c.Count))
		case Halving:
			return x.steps(HalvingAllReduce(g.rank, g.n, c.Count))
		}
	case ReduceScatter:
		if a == InOrder {
			return x.reduceInOrder()
		}
		return x.steps(RingReduceScatter(g.rank, g.n, c.Count))
	case AllGather:
		return x.steps(RingAllGather(g.rank, g.n, c.Count))
	case Broadcast:
		return x.steps(TreeBroadcast(g.rank, g.n, c.Root, c.Count))
	case AllToAll:
		return x.allToAll()
	default:
		return x.steps(Dissemination(g.rank, g.n))
	}
}

// finish divides the sum if the call asks for the average.
func (x *execution) finish() {
	if x.call.Reduction != Average {
		return
	}
	switch x.call.Operation {
	case AllReduce:
		divide(x.buf, x.call.Element, x.g.n)
	case ReduceScatter:
		divide(x.bytes(part(x.g.rank, x.g.n, x.call.Count)), x.call.Element, x.g.n)
	default: // the others do not reduce
	}
}

// bytes returns the bytes of a span.
func (x *execution) bytes(s Span) []byte { return x.buf[s.From*x.size : s.To*x.size] }

// extend replaces the buffer by a copy with space for n more elements at its end, and returns a
// function that restores the buffer.
func (x *execution) extend(n int) (back func()) {
	own := x.buf
	both := make([]uint64, (len(own)+n*x.size+7)/8)
	x.buf = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(both))), len(own)+n*x.size)
	copy(x.buf, own)
	return func() { x.buf = own }
}

// exchange leaves the parts of all ranks that belong to this rank behind the buffer, in the order
// of ranks. It returns the number of elements of each, and the function that restores the buffer.
func (x *execution) exchange() (size int, back func(), err error) {
	g, mine := x.g, part(x.g.rank, x.g.n, x.call.Count)
	back = x.extend(mine.Len() * g.n)
	err = x.steps(PairwiseAllToAll(g.rank, g.n, x.call.Count))
	place := x.call.Count + g.rank*mine.Len()
	copy(x.bytes(Span{place, place + mine.Len()}), x.bytes(mine))
	return mine.Len(), back, err
}

func (x *execution) allToAll() error {
	size, back, err := x.exchange()
	got := x.bytes(Span{x.call.Count, x.call.Count + size*x.g.n})
	back()
	copy(x.buf, got)
	return err
}

// reduceInOrder reduces the rank's part in the order of ranks.
func (x *execution) reduceInOrder() error {
	size, back, err := x.exchange()
	if err != nil {
		return err
	}
	at := func(rank int) []byte {
		return x.bytes(Span{x.call.Count + rank*size, x.call.Count + (rank+1)*size})
	}
	for rank := 1; rank < x.g.n; rank++ {
		combine(at(0), at(rank), x.call.Element, x.call.Reduction)
	}
	got := at(0)
	back()
	copy(x.bytes(part(x.g.rank, x.g.n, x.call.Count)), got)
	return nil
}

// steps executes a schedule.
func (x *execution) steps(s Schedule) error {
	for _, step := range s {
		if err := x.step(step); err != nil {
			return err
		}
	}
	return nil
}

// step sends and receives at once.
func (x *execution) step(s Step) error {
	sent := make(chan error, 1)
	if s.To == NoRank {
		sent <- nil
	} else {
		go func() { sent <- x.g.peers[s.To].send(x.number, x.announced, x.bytes(s.Send)) }()
	}
	if s.From == NoRank {
		return <-sent
	}
	if s.To != NoRank && s.Send.From < s.Receive.To && s.Receive.From < s.Send.To {
		return x.receiveAside(s, sent)
	}
	if err := x.receive(s, x.bytes(s.Receive)); err != nil {
		return x.abandon(err, sent)
	}
	return <-sent
}

// abandon ends the group, which ends a send that hangs, so that no goroutine reads the caller's
// buffer after the call has returned.
func (x *execution) abandon(err error, sent <-chan error) error {
	x.g.fail(err)
	<-sent
	return err
}

// receive reads elements into to, or combines them with its elements piece by piece.
func (x *execution) receive(s Step, to []byte) error {
	p := x.g.peers[s.From]
	if !s.Combine {
		return p.receive(x.number, len(to), func(at, n int) []byte { return to[at : at+n] }, func(int, []byte) {})
	}
	piece := x.g.aside(min(pieceSize, len(to)))
	return p.receive(x.number, len(to),
		func(_, n int) []byte { return piece[:min(n, len(piece))] },
		func(at int, got []byte) { combine(to[at:at+len(got)], got, x.call.Element, x.call.Reduction) })
}

// receiveAside receives elements of a span that is being sent at the same time: the span changes
// only after it has been sent.
func (x *execution) receiveAside(s Step, sent <-chan error) error {
	to := x.bytes(s.Receive)
	aside := x.g.aside(len(to))
	direct := s
	direct.Combine = false
	if err := x.receive(direct, aside); err != nil {
		return x.abandon(err, sent)
	}
	if err := <-sent; err != nil {
		return err
	}
	if !s.Combine {
		copy(to, aside)
		return nil
	}
	combine(to, aside, x.call.Element, x.call.Reduction)
	return nil
}

// aside returns memory for n bytes, aligned to all elements. The group owns it; it is valid until
// the next call of aside.
func (g *Group) aside(n int) []byte {
	if cap(g.scratch) < n {
		words := make([]uint64, (n+7)/8)
		g.scratch = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	}
	return g.scratch[:n]
}

// aligned reports whether the buffer may be read as elements.
func aligned(b []byte, e Element) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(max(e.Size(), 1)) == 0
}
