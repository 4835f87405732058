package llama

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// A prefixTree holds token sequences whose attention state is kept, as a radix tree for each scope
// (engine.Generation.CacheScope): sequences of a scope with a common beginning share its node, as
// they share its cells.
type prefixTree struct {
	roots map[string]*prefixNode // by the scopes that have sequences
	ends  map[int32]*prefixNode  // the node at which each sequence ends, by its identifier
	used  map[int32]time.Time    // of each sequence, last; no two are equal
	clock time.Time              // of the last use
	cells int                    // tokens of all nodes
	// hashes identify the beginnings of each sequence.
	hashes map[int32]engine.Prefixes
	budget cacheBudget
}

type prefixNode struct {
	tokens   []int32
	parent   *prefixNode
	children map[int32]*prefixNode // by their first token
	sequence int32                 // the sequence that ends here, noSequence for none
	scope    string                // of a root
}

const noSequence = -1

// newPrefixTree returns an empty tree with a budget from least to most cells.
func newPrefixTree(least, most int) *prefixTree {
	return &prefixTree{
		roots: map[string]*prefixNode{}, ends: map[int32]*prefixNode{}, used: map[int32]time.Time{},
		hashes: map[int32]engine.Prefixes{}, budget: newCacheBudget(least, most),
	}
}

// match returns the length of the longest beginning of tokens that is in the tree of a scope, and a
// sequence that has it; noSequence if the length is 0.
func (t *prefixTree) match(scope string, tokens []int32) (sequence int32, length int) {
	node := t.roots[scope]
	for node != nil {
		next := node.children[first(tokens[length:])]
		if length == len(tokens) || next == nil {
			break
		}
		n := common(next.tokens, tokens[length:])
		node, length = next, length+n
		if n < len(next.tokens) {
			break
		}
	}
	if length == 0 {
		return noSequence, 0
	}
	sequence = node.anySequence()
	t.touch(sequence)
	return sequence, length
}

func (t *prefixTree) touch(sequence int32) {
	if now := time.Now(); now.After(t.clock) {
		t.clock = now
	} else {
		t.clock = t.clock.Add(1)
	}
	t.used[sequence] = t.clock
}

// anySequence returns a sequence that ends at n or below it.
func (n *prefixNode) anySequence() int32 {
	for n.sequence == noSequence {
		for _, child := range n.children {
			n = child
			break
		}
	}
	return n.sequence
}

// insert adds tokens, at least one, as the sequence of that identifier. It returns the sequences
// that became beginnings of others and are no longer needed.
func (t *prefixTree) insert(sequence int32, scope string, tokens []int32) (redundant []int32) {
	node := t.roots[scope]
	if node == nil {
		node = &prefixNode{sequence: noSequence, scope: scope}
		t.roots[scope] = node
	}
	t.hashes[sequence] = engine.PrefixHashes(scope, tokens, engine.MaxPrefixes)
	for len(tokens) > 0 {
		if node.sequence != noSequence {
			redundant = append(redundant, node.sequence)
			t.forget(node.sequence)
		}
		next := node.children[tokens[0]]
		if next == nil {
			next = node.addChild(slices.Clone(tokens))
			t.cells += len(tokens)
		}
		n := common(next.tokens, tokens)
		if n < len(next.tokens) {
			t.split(next, n)
		}
		node, tokens = next, tokens[n:]
	}
	node.sequence = sequence
	t.ends[sequence] = node
	t.touch(sequence)
	return redundant
}

func (n *prefixNode) addChild(tokens []int32) *prefixNode {
	child := &prefixNode{tokens: tokens, parent: n, sequence: noSequence}
	if n.children == nil {
		n.children = map[int32]*prefixNode{}
	}
	n.children[tokens[0]] = child
	return child
}

// split makes n end after its first length tokens; the other tokens move to a child, and with them
// the sequence that ends there.
func (t *prefixTree) split(n *prefixNode, length int) {
	rest := &prefixNode{tokens: n.tokens[length:], parent: n, children: n.children, sequence: n.sequence}
	for _, child := range rest.children {
		child.parent = rest
	}
	if rest.sequence != noSequence {
		t.ends[rest.sequence] = rest
	}
	n.tokens, n.sequence = n.tokens[:length:length], noSequence
	n.children = map[int32]*prefixNode{rest.tokens[0]: rest}
}

// oldest returns the least recently used sequence, noSequence if the tree is empty.
func (t *prefixTree) oldest() int32 {
	oldest := int32(noSequence)
	for sequence, at := range t.used {
		if oldest == noSequence || at.Before(t.used[oldest]) {
			oldest = sequence
		}
	}
	return oldest
}

// evict removes a sequence for the cells that it needs.
func (t *prefixTree) evict(sequence int32) {
	t.budget.recordEviction(t.hashes[sequence])
	t.remove(sequence)
}

// sequence returns the scope and the tokens of a sequence, and how many of them, at its end, no
// other sequence has.
func (t *prefixTree) sequence(sequence int32) (scope string, tokens []int32, own int) {
	node, shared := t.ends[sequence], false
	for ; node.parent != nil; node = node.parent {
		tokens = slices.Concat(node.tokens, tokens)
		shared = shared || len(node.children) > 1 || node.sequence != noSequence && node.sequence != sequence
		if !shared {
			own += len(node.tokens)
		}
	}
	return node.scope, tokens, own
}

func (t *prefixTree) forget(sequence int32) {
	t.ends[sequence].sequence = noSequence
	delete(t.ends, sequence)
	delete(t.used, sequence)
	delete(t.hashes, sequence)
}

// prefixes identifies the beginnings of the tree's sequences, the last used first.
func (t *prefixTree) prefixes() iter.Seq[engine.Prefixes] {
	return func(yield func(engine.Prefixes) bool) {
		for _, sequence := range slices.SortedFunc(maps.Keys(t.hashes), func(a, b int32) int { return t.used[b].Compare(t.used[a]) }) {
			if !yield(t.hashes[sequence]) {
				return
			}
		}
	}
}

// firstPrefixes returns the first engine.MaxPrefixes different hashes of several lists.
func firstPrefixes(lists ...iter.Seq[engine.Prefixes]) engine.Prefixes {
	var all engine.Prefixes
	seen := map[uint32]bool{}
	for _, list := range lists {
		for hashes := range list {
			for _, hash := range hashes {
				if len(all) == engine.MaxPrefixes {
					return all
				}
				if !seen[hash] {
					seen[hash] = true
					all = append(all, hash)
				}
			}
		}
	}
	return all
}

// remove removes a sequence and the nodes that only it needs.
func (t *prefixTree) remove(sequence int32) {
	node := t.ends[sequence]
	t.forget(sequence)
	for node.parent != nil && node.sequence == noSequence && len(node.children) == 0 {
		t.cells -= len(node.tokens)
		delete(node.parent.children, node.tokens[0])
		node = node.parent
	}
	if node.parent == nil && len(node.children) == 0 {
		delete(t.roots, node.scope)
	}
}

func first(tokens []int32) int32 {
	if len(tokens) == 0 {
		return noSequence
	}
	return tokens[0]
}

// common returns the length of the common beginning of a and b.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
