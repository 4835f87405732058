package collective

// A Span is the elements From to To-1 of a rank's buffer.
type Span struct{ From, To int }

// Len returns the number of elements.
func (s Span) Len() int { return s.To - s.From }

// NoRank is the peer of a step that does not send, or does not receive.
const NoRank = -1

// A Step is one step of a rank: it sends elements to one rank while it receives elements from one.
// It sends the values from before the step.
type Step struct {
	To, From      int // ranks, or Nobody
	Send, Receive Span
	// Combine says that the received elements are combined with the present ones; otherwise they
	// replace them.
	Combine bool
}

// A Schedule is the steps of one rank. The n-th message from a rank to another matches the n-th
// that the other receives from it.
type Schedule []Step

// part returns the i-th of n parts of count elements, whose sizes differ by at most one.
func part(i, n, count int) Span {
	// Without overflow: i*count/n.
	at := func(i int) int { return count/n*i + count%n*i/n }
	return Span{at(i), at(i + 1)}
}

// parts returns the elements of the parts from to to-1 of n.
func parts(from, to, n, count int) Span {
	return Span{part(from, n, count).From, part(to-1, n, count).To}
}

// RingReduceScatter leaves in part (rank) of each rank the reduction of that part of all ranks:
// n-1 steps, each with one part.
func RingReduceScatter(rank, n, count int) Schedule {
	var s Schedule
	for step := range n - 1 {
		s = append(s, Step{
			To: (rank + 1) % n, From: (rank + n - 1) % n,
			Send: part((rank+2*n-step-1)%n, n, count), Receive: part((rank+2*n-step-2)%n, n, count), Combine: true,
		})
	}
	return s
}

// RingAllGather distributes part (rank) of each rank to all.
func RingAllGather(rank, n, count int) Schedule {
	var s Schedule
	for step := range n - 1 {
		s = append(s, Step{
			To: (rank + 1) % n, From: (rank + n - 1) % n,
			Send: part((rank+n-step)%n, n, count), Receive: part((rank+2*n-step-1)%n, n, count),
		})
	}
	return s
}

// RingAllReduce sends 2(1-1/n) of the elements over each link, the least that is possible, in
// 2(n-1) steps.
func RingAllReduce(rank, n, count int) Schedule {
	return append(RingReduceScatter(rank, n, count), RingAllGather(rank, n, count)...)
}

// DoublingAllReduce exchanges all elements in each of log2(n) steps: the fastest for few elements.
func DoublingAllReduce(rank, n, count int) Schedule {
	all := Span{0, count}
	return folded(rank, n, all, func(position, power int, real func(int) int) Schedule {
		var s Schedule
		for distance := 1; distance < power; distance *= 2 {
			peer := real(position ^ distance)
			s = append(s, Step{To: peer, From: peer, Send: all, Receive: all, Combine: true})
		}
		return s
	})
}

// HalvingAllReduce halves the elements in each of log2(n) steps and doubles them in as many
// (Rabenseifner): as few bytes as the ring for powers of two, in fewer steps.
func HalvingAllReduce(rank, n, count int) Schedule {
	return folded(rank, n, Span{0, count}, func(position, power int, real func(int) int) Schedule {
		var s Schedule
		from, to := 0, power
		for distance := power / 2; distance >= 1; distance /= 2 {
			peer, middle := real(position^distance), (from+to)/2
			low, high := parts(from, middle, power, count), parts(middle, to, power, count)
			if position&distance == 0 {
				s = append(s, Step{To: peer, From: peer, Send: high, Receive: low, Combine: true})
				to = middle
			} else {
				s = append(s, Step{To: peer, From: peer, Send: low, Receive: high, Combine: true})
				from = middle
			}
		}
		return append(s, doublingGather(position, power, count, real)...)
	})
}

// doublingGather distributes the part of each position to all.
func doublingGather(position, power, count int, real func(int) int) Schedule {
	var s Schedule
	for distance := 1; distance < power; distance *= 2 {
		first := position &^ (distance - 1)
		other := first ^ distance
		s = append(s, Step{
			To: real(position ^ distance), From: real(position ^ distance),
			Send:    parts(first, first+distance, power, count),
			Receive: parts(other, other+distance, power, count),
		})
	}
	return s
}

// folded makes a schedule for any number of ranks from one for powers of two: of the first
// 2(n-power) ranks the odd ranks send their elements to the even rank before them, take no part,
// and receive the result in the end.
func folded(rank, n int, all Span, inner func(position, power int, real func(int) int) Schedule) Schedule {
	power := 1
	for power*2 <= n {
		power *= 2
	}
	extra := n - power
	real := func(position int) int {
		if position < extra {
			return 2 * position
		}
		return position + extra
	}
	switch {
	case rank >= 2*extra:
		return inner(rank-extra, power, real)
	case rank%2 == 1:
		return Schedule{
			{To: rank - 1, From: NoRank, Send: all},
			{To: NoRank, From: rank - 1, Receive: all},
		}
	}
	s := Schedule{{To: NoRank, From: rank + 1, Receive: all, Combine: true}}
	s = append(s, inner(rank/2, power, real)...)
	return append(s, Step{To: rank + 1, From: NoRank, Send: all})
}

// TreeBroadcast sends the elements of root along a binomial tree.
func TreeBroadcast(rank, n, root, count int) Schedule {
	all, virtual := Span{0, count}, (rank-root+n)%n
	real := func(v int) int { return (v + root) % n }
	var s Schedule
	reach := 1
	for ; reach < n; reach *= 2 {
		if virtual&reach != 0 {
			s = append(s, Step{To: NoRank, From: real(virtual - reach), Receive: all})
			break
		}
	}
	for reach /= 2; reach >= 1; reach /= 2 {
		if virtual+reach < n {
			s = append(s, Step{To: real(virtual + reach), From: NoRank, Send: all})
		}
	}
	return s
}

// PairwiseAllToAll sends part j of the elements of rank i to rank j. The received elements go
// behind the count elements: those of rank j to place j there, each place as large as part (rank).
// The caller copies the part that a rank keeps.
func PairwiseAllToAll(rank, n, count int) Schedule {
	var s Schedule
	size := part(rank, n, count).Len()
	for step := 1; step < n; step++ {
		to, from := (rank+step)%n, (rank+n-step)%n
		s = append(s, Step{To: to, From: from, Send: part(to, n, count), Receive: Span{count + from*size, count + (from+1)*size}})
	}
	return s
}

// Dissemination lets no rank end before all have begun, in log2(n) steps without elements
// (Hensgen, Finkel and Manber, 1988).
func Dissemination(rank, n int) Schedule {
	var s Schedule
	for distance := 1; distance < n; distance *= 2 {
		s = append(s, Step{To: (rank + distance) % n, From: (rank + n - distance) % n})
	}
	return s
}
