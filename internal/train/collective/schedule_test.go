package collective

import (
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// simulate executes the schedules of all ranks on their elements, one step at a time, with
// messages that wait until they are received. It returns the elements that each rank has sent.
func simulate(t *rapid.T, schedules []Schedule, values [][]int64) (sent []int) {
	type way struct{ from, to int }
	under := make(map[way][][]int64)
	next, offered := make([]int, len(schedules)), make([]bool, len(schedules))
	sent = make([]int, len(schedules))
	for progress := true; progress; {
		progress = false
		for rank, s := range schedules {
			if next[rank] == len(s) {
				continue
			}
			step := s[next[rank]]
			if !offered[rank] && step.To != NoRank {
				message := append([]int64(nil), values[rank][step.Send.From:step.Send.To]...)
				under[way{rank, step.To}] = append(under[way{rank, step.To}], message)
				sent[rank] += len(message)
			}
			offered[rank] = true
			if step.From != NoRank {
				queue := under[way{step.From, rank}]
				if len(queue) == 0 {
					continue
				}
				under[way{step.From, rank}] = queue[1:]
				applyMessage(t, step, values[rank], queue[0])
			}
			next[rank], offered[rank], progress = next[rank]+1, false, true
		}
	}
	for rank, s := range schedules {
		if next[rank] != len(s) {
			t.Fatalf("rank %d waits for ever in step %d of %d: %+v", rank, next[rank], len(s), s[next[rank]])
		}
	}
	for w, queue := range under {
		if len(queue) > 0 {
			t.Fatalf("%d messages from %d to %d are never received", len(queue), w.from, w.to)
		}
	}
	return sent
}

func applyMessage(t *rapid.T, step Step, values, message []int64) {
	if len(message) != step.Receive.Len() {
		t.Fatalf("%d elements arrive where %d are expected", len(message), step.Receive.Len())
	}
	for i, v := range message {
		if step.Combine {
			v += values[step.Receive.From+i]
		}
		values[step.Receive.From+i] = v
	}
}

// start returns elements that are different in each rank and place: a sum that lacks one, or has
// one twice, is another.
func start(n, count, room int) [][]int64 {
	values := make([][]int64, n)
	for rank := range values {
		values[rank] = make([]int64, room)
		for i := range count {
			values[rank][i] = int64(1+i) << (rank * 2)
		}
	}
	return values
}

func reduced(n, i int) (sum int64) {
	for rank := range n {
		sum += int64(1+i) << (rank * 2)
	}
	return sum
}

func schedules(n int, of func(rank int) Schedule) []Schedule {
	all := make([]Schedule, n)
	for rank := range all {
		all[rank] = of(rank)
	}
	return all
}

func draw(t *rapid.T) (n, count int) {
	return rapid.IntRange(1, 20).Draw(t, "ranks"), rapid.IntRange(0, 50).Draw(t, "elements")
}

func TestAllReducesSumAllRanks(t *testing.T) {
	for name, make := range map[string]func(rank, n, count int) Schedule{
		"ring": RingAllReduce, "doubling": DoublingAllReduce, "halving": HalvingAllReduce,
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			n, count := draw(t)
			values := start(n, count, count)
			sent := simulate(t, schedules(n, func(rank int) Schedule { return make(rank, n, count) }), values)
			for rank := range values {
				for i, got := range values[rank] {
					if want := reduced(n, i); got != want {
						t.Fatalf("rank %d has %d in place %d, want %d", rank, got, i, want)
					}
				}
			}
			// The least that is possible, but for parts that differ by one element.
			if most := 2*(n-1)*((count+n-1)/n) + 1; name == "ring" && sent[0] > most {
				t.Fatalf("rank 0 sends %d elements, at most %d are needed", sent[0], most)
			}
		}))
	}
}

func TestReduceScatterLeavesEachRankItsPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, count := draw(t)
		values := start(n, count, count)
		simulate(t, schedules(n, func(rank int) Schedule { return RingReduceScatter(rank, n, count) }), values)
		for rank := range values {
			own := part(rank, n, count)
			for i := own.From; i < own.To; i++ {
				if got, want := values[rank][i], reduced(n, i); got != want {
					t.Fatalf("rank %d has %d in place %d, want %d", rank, got, i, want)
				}
			}
		}
	})
}

func TestAllGatherDistributesEachRanksPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, count := draw(t)
		values := start(n, count, count)
		want := make([]int64, count)
		for rank := range n {
			own := part(rank, n, count)
			copy(want[own.From:own.To], values[rank][own.From:own.To])
		}
		simulate(t, schedules(n, func(rank int) Schedule { return RingAllGather(rank, n, count) }), values)
		for rank := range values {
			if fmt.Sprint(values[rank]) != fmt.Sprint(want) {
				t.Fatalf("rank %d has %v, want %v", rank, values[rank], want)
			}
		}
	})
}

func TestBroadcastSendsTheRootsElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, count := draw(t)
		root := rapid.IntRange(0, n-1).Draw(t, "root")
		values := start(n, count, count)
		want := fmt.Sprint(values[root])
		all := schedules(n, func(rank int) Schedule { return TreeBroadcast(rank, n, root, count) })
		simulate(t, all, values)
		for rank := range values {
			if fmt.Sprint(values[rank]) != want {
				t.Fatalf("rank %d has %v, want %s", rank, values[rank], want)
			}
			if most := bits.Len(uint(n - 1)); len(all[rank]) > most {
				t.Fatalf("rank %d takes %d steps, want at most %d", rank, len(all[rank]), most)
			}
		}
	})
}

func TestAllToAllExchangesParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, count := draw(t)
		count -= count % n
		values, size := start(n, count, 2*count), count/n
		simulate(t, schedules(n, func(rank int) Schedule { return PairwiseAllToAll(rank, n, count) }), values)
		for rank := range values {
			for from := range n {
				for i := range size {
					want := int64(1+rank*size+i) << (from * 2)
					if got := values[rank][count+from*size+i]; from != rank && got != want {
						t.Fatalf("rank %d has %d from rank %d, want %d", rank, got, from, want)
					}
				}
			}
		}
	})
}

func TestNobodyLeavesABarrierEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 33).Draw(t, "ranks")
		// Who is known, by what was heard: a rank may leave when it knows that all have begun.
		known := make([]map[int]bool, n)
		for rank := range known {
			known[rank] = map[int]bool{rank: true}
		}
		for step := range len(Dissemination(0, n)) {
			before := make([]map[int]bool, n)
			for rank := range known {
				before[rank] = map[int]bool{}
				for k := range known[rank] {
					before[rank][k] = true
				}
			}
			for rank := range n {
				for k := range before[Dissemination(rank, n)[step].From] {
					known[rank][k] = true
				}
			}
		}
		for rank := range known {
			if len(known[rank]) != n {
				t.Fatalf("rank %d leaves when it has heard of %d of %d ranks", rank, len(known[rank]), n)
			}
		}
	})
}
