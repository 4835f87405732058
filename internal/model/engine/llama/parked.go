package llama

import (
	"iter"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// A parkedState is the attention state of a sequence outside the cells: micro-batches do not read
// it, and restoring it takes a copy instead of a computation.
type parkedState struct {
	scope  string
	tokens []int32
	data   []byte // of llama_state_seq_get_data, in memory of its own
	hashes engine.Prefixes
	used   time.Time // last
}

// parkedStates are the states of sequences that were evicted from a prefixTree, of at most most
// bytes, the last used at the end.
type parkedStates struct {
	states      []*parkedState
	bytes, most int64
}

// defaultParked bounds the parked states of a model without a limit of memory, in bytes.
const defaultParked = 256 << 20

// leastParked is the least number of tokens for which a state is parked or restored: a shorter part
// is computed in the same micro-batch as the rest of a prompt.
const leastParked = engine.PrefixBlock

// match returns the state of a scope with the longest beginning in common with tokens, and the
// length of that; nil if there is none.
func (p *parkedStates) match(scope string, tokens []int32) (best *parkedState, length int) {
	for _, s := range p.states {
		if s.scope != scope {
			continue
		}
		if n := common(s.tokens, tokens); n > length {
			best, length = s, n
		}
	}
	return best, length
}

// touch makes a state the last used. It reports false if the state is no longer kept.
func (p *parkedStates) touch(s *parkedState) bool {
	i := slices.Index(p.states, s)
	if i < 0 {
		return false
	}
	p.states = append(slices.Delete(p.states, i, i+1), s)
	s.used = time.Now()
	return true
}

// add keeps a state that fits, in place of the states that have less than leastParked tokens which it
// has not, and of those that were not used for longest.
func (p *parkedStates) add(s *parkedState) {
	p.removeIf(func(old *parkedState) bool {
		return old.scope == s.scope && len(old.tokens)-common(old.tokens, s.tokens) < leastParked
	})
	p.states = append(p.states, s)
	s.used = time.Now()
	p.bytes += int64(len(s.data))
	for p.bytes > p.most {
		p.remove(p.states[0])
	}
}

// prefixes identifies the beginnings of the states, the last used first.
func (p *parkedStates) prefixes() iter.Seq[engine.Prefixes] {
	return func(yield func(engine.Prefixes) bool) {
		for _, s := range slices.Backward(p.states) {
			if !yield(s.hashes) {
				return
			}
		}
	}
}

func (p *parkedStates) remove(s *parkedState) {
	p.removeIf(func(old *parkedState) bool { return old == s })
}

func (p *parkedStates) removeIf(drop func(*parkedState) bool) {
	p.states = slices.DeleteFunc(p.states, func(s *parkedState) bool {
		if !drop(s) {
			return false
		}
		p.bytes -= int64(len(s.data))
		_ = unix.Munmap(s.data) // of Mmap
		return true
	})
}

// park copies the state of a cached sequence out of its cells, if its part that no other sequence
// shares is worth it.
func (s *scheduler) park(id int32) {
	scope, tokens, own := s.tree.sequence(id)
	if own < leastParked {
		return
	}
	if _, n := s.parked.match(scope, tokens); n == len(tokens) {
		return
	}
	size := int64(s.m.lib.call(fnStateSize, s.m.context, uintptr(id)))
	if size <= 0 || size > s.parked.most {
		return
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return // there is no memory for what is only a cache
	}
	n := int64(s.m.lib.call(fnStateGet, s.m.context, addressOf(data), uintptr(size), uintptr(id)))
	if n <= 0 || n > size {
		_ = unix.Munmap(data)
		return
	}
	s.parked.add(&parkedState{scope: scope, tokens: tokens, data: data, hashes: engine.PrefixHashes(scope, tokens, engine.MaxPrefixes)})
}

// restore copies the parked state that has more than length tokens of a prompt in common into the
// cells of a sequence that is about to start, if its cells are free. It returns the number of
// tokens that the sequence has then, 0 if none was restored.
func (s *scheduler) restore(q *sequence, prompt []int32, length int) int {
	state, n := s.parked.match(q.request.CacheScope, prompt)
	if n < length+leastParked || !s.reserve(max(0, len(state.tokens)-q.cells())) {
		return 0
	}
	if !s.parked.touch(state) {
		return 0 // it made place for what reserve has evicted
	}
	if s.m.lib.call(fnStateSet, s.m.context, addressOf(state.data), uintptr(len(state.data)), uintptr(q.slot)) == 0 {
		s.parked.remove(state) // the library refuses it
		s.removeCells(q.slot, 0)
		return 0
	}
	s.removeCells(q.slot, n)
	return n
}

// addressOf returns the address of mapped memory, which the garbage collector does not manage.
func addressOf(mapped []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mapped))) }
