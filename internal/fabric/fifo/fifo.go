// Package fifo provides a first-in, first-out queue in a slice whose memory is reused.
package fifo

// A Queue holds values in the order in which they were pushed. Push and Pop take amortised
// constant time, and the queue's memory is bounded by a small multiple of the most values that it
// has held at once. The zero value is an empty queue. It is not safe for concurrent use.
type Queue[T any] struct {
	items []T
	first int // the index of the oldest value; the items before it are zero
}

// Len returns the number of values in the queue.
func (q *Queue[T]) Len() int { return len(q.items) - q.first }

// Push appends a value.
func (q *Queue[T]) Push(v T) {
	if len(q.items) == cap(q.items) && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// Pop removes the oldest value and returns it. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	var zero T
	v := q.items[q.first]
	q.items[q.first] = zero
	if q.first++; q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	}
	return v
}

// All returns the values, oldest first. The slice is valid until the queue changes.
func (q *Queue[T]) All() []T { return q.items[q.first:] }

// Clear removes all values, and keeps their memory for later values.
func (q *Queue[T]) Clear() {
	clear(q.items)
	q.items, q.first = q.items[:0], 0
}
