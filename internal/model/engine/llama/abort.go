package llama

import (
	"slices"
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

// interrupt wakes the scheduler when the context of a sequence has ended, and ends the computation
// of a micro-batch of which no sequence is needed any more. A micro-batch that others need goes on:
// clients that leave must not take from others what is computed for them.
func (s *scheduler) interrupt() {
	s.mu.Lock()
	needed := func(q *sequence) bool { return !s.closed && q.ctx.Err() == nil }
	if len(s.computing) > 0 && !slices.ContainsFunc(s.computing, needed) {
		s.m.abort.set(1)
	}
	s.mu.Unlock()
	s.wake()
}

// compute has the library compute the micro-batch, and returns what llama_decode returns.
func (s *scheduler) compute() int32 {
	s.setComputing(slices.DeleteFunc(slices.Clone(s.running), func(q *sequence) bool { return q.computed == q.kept }))
	defer s.setComputing(nil)
	return int32(s.m.lib.callStruct(fnDecode, s.batch.params(), s.m.context))
}

func (s *scheduler) setComputing(sequences []*sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.computing = sequences
	s.m.abort.set(0)
}

// takeBack removes an aborted micro-batch from the sequences.
func (s *scheduler) takeBack() {
	for _, q := range s.running {
		q.computed, q.output = q.kept, -1
		s.removeCells(q.slot, q.kept)
	}
}
