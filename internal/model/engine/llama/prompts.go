package llama

import (
	"cmp"
	"slices"
)

// shortestShare is the inverse share of the tokens of a micro-batch that prompts get of which the
// fewest tokens remain: short prompts do not wait for the long ones, which go on with the rest.
const shortestShare = 2

// fillPrompts adds at most available tokens of prompts to the micro-batch: a share of them by shortest
// remaining time, the others by turns of the clients.
func fillPrompts(s *scheduler, available int) {
	prompts := slices.DeleteFunc(slices.Clone(s.running), func(q *sequence) bool { return q.remaining() == 0 })
	shortest := slices.Clone(prompts)
	slices.SortStableFunc(shortest, func(a, b *sequence) int { return cmp.Compare(a.remaining(), b.remaining()) })
	share := 0
	if len(prompts) > 1 {
		share = available / shortestShare
	}
	available -= share - fillInOrder(s, shortest, share)
	fillInOrder(s, byTurns(prompts), available)
}

// fillInOrder adds at most available tokens of prompts to the micro-batch, and returns how many of
// them are left.
func fillInOrder(s *scheduler, prompts []*sequence, available int) (left int) {
	for _, q := range prompts {
		available -= s.fillChunk(q, available)
	}
	return available
}

// byTurns orders sequences, which are in the order of their start: the first one of each client comes
// before the second one of any.
func byTurns(list []*sequence) []*sequence {
	seen := map[string]int{}
	turn := make(map[*sequence]int, len(list))
	for _, q := range list {
		turn[q] = seen[q.request.CacheScope]
		seen[q.request.CacheScope]++
	}
	ordered := slices.Clone(list)
	slices.SortStableFunc(ordered, func(a, b *sequence) int { return cmp.Compare(turn[a], turn[b]) })
	return ordered
}
