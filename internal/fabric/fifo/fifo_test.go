package fifo

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A queue gives what a slice would that is shifted.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var want []int
		for i, op := range rapid.SliceOf(rapid.IntRange(0, 10)).Draw(t, "operations") {
			switch {
			case op == 0:
				q.Clear()
				want = nil
			case op < 5 && len(want) > 0:
				if got := q.Pop(); got != want[0] {
					t.Fatalf("got %d, want %d", got, want[0])
				}
				want = want[1:]
			default:
				q.Push(i)
				want = append(want, i)
			}
			if q.Len() != len(want) || !slices.Equal(q.All(), want) {
				t.Fatalf("holds %v, want %v", q.All(), want)
			}
		}
	})
}

// The memory of a queue that is never empty does not grow with what has passed it.
func TestQueueMemory(t *testing.T) {
	var q Queue[*int]
	for range 10 {
		q.Push(new(int))
	}
	for range 100_000 {
		q.Push(new(int))
		q.Pop()
	}
	if c := cap(q.items); c > 64 {
		t.Errorf("a queue of 10 values has memory for %d", c)
	}
	for _, p := range q.items[:q.first] {
		if p != nil {
			t.Error("a value that was popped is still referenced")
		}
	}
}
