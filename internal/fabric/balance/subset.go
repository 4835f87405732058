package balance

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// choose splits a tier's members into the client's subset and the rest, each in
// the order of their IDs.
func (s *Subset) choose(list []*member) (in, out []*member) {
	if s.Size == 0 || len(list) <= s.Size {
		return list, nil
	}
	type ranked struct {
		*member
		rank uint64
	}
	order := make([]ranked, len(list))
	for i, m := range list {
		order[i] = ranked{m, s.rank(m.ID)}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.ID, b.ID))
	})
	for i, r := range order {
		if i < s.Size {
			in = append(in, r.member)
		} else {
			out = append(out, r.member)
		}
	}
	byID := func(a, b *member) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(in, byID)
	slices.SortFunc(out, byID)
	return in, out
}

// rank returns the client's rank of an endpoint: its subset is the endpoints of the highest ranks.
func (s *Subset) rank(id string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(s.Client))
	hash.Write([]byte{0})
	hash.Write([]byte(id))
	// FNV alone spreads the last bytes too little.
	return splitmix64(hash.Sum64())
}
