package llama

import (
	"slices"
	"sync"
	"sync/atomic"
)

// decodeAborted is what llama_decode returns when its callback has ended the computation. It has
// removed the micro-batch from the attention state then.
const decodeAborted = 2

// An abortFlag ends the computation of a micro-batch. The library asks a callback after each
// operation of a graph, with an address of its own choice, whether to stop (ggml_abort_callback).
// C's strlen serves as this callback, since a function of Go would take longer than a small
// operation: of the flag's bytes 0 0 0 0 it returns 0, which is false, and 1 of 1 0 0 0.
type abortFlag struct{ word *pinned[uint32] }

// newAbortFlag has a llama_context ask for the flag.
func (l *library) newAbortFlag(context uintptr) abortFlag {
	f := abortFlag{pin(make([]uint32, 1))}
	l.call(fnSetAbort, context, l.strlen, f.word.address())
	return f
}

func (f abortFlag) set(v uint32) { atomic.StoreUint32(&f.word.values[0], v) }

// free releases the flag's memory. The context must be freed before.
func (f abortFlag) free() {
	if f.word != nil {
		f.word.free()
	}
}

// A computation is the micro-batch that the library computes. Any goroutine may end it.
type computation struct {
	flag abortFlag

	mu        sync.Mutex
	sequences []*sequence // that have tokens in it; none while nothing is computed
	closed    bool
}

// setSequences is called with the sequences of a micro-batch before the library computes it, and
// with none after it.
func (c *computation) setSequences(sequences []*sequence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences = sequences
	c.flag.set(0)
	c.endIfUnneeded() // their contexts may have ended since the scheduler last checked them
}

// abandon ends the computation if no sequence needs it any more. A micro-batch that others need goes
// on: clients that leave must not take from others what is computed for them.
func (c *computation) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endIfUnneeded()
}

// endIfUnneeded ends the computation if no sequence needs it. mu must be held.
func (c *computation) endIfUnneeded() {
	needed := func(q *sequence) bool { return !c.closed && q.ctx.Err() == nil }
	if len(c.sequences) > 0 && !slices.ContainsFunc(c.sequences, needed) {
		c.flag.set(1)
	}
}

// close ends the computation even if sequences need it: the model is being closed.
func (c *computation) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.abandon()
}

// interrupt is called when the context of a sequence has ended.
func (s *scheduler) interrupt() {
	s.computation.abandon()
	s.wake()
}

// takeBack removes an aborted micro-batch from the sequences.
func takeBack(s *scheduler) {
	for _, q := range s.running {
		q.computed, q.output = q.kept, -1
		s.removeCells(q.slot, q.kept)
	}
}
