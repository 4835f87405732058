package transit

import (
	"slices"

	"github.com/outboard-run/outboard/fabric/call"
)

// receiver is a leg as a legReader reads it.
type receiver interface {
	comparable
	Recv() (*call.Message, error)
	// drained is closed when the leg has been read to its end.
	drained() <-chan struct{}
}

// A legReader reads the legs of a stream one after the other. The channel reading is a lock of
// the other fields: the goroutine that has sent into it holds them until it receives.
type legReader[L receiver] struct {
	reading chan struct{}
	in      L
	queued  []*call.Message // received before the messages of in
	err     error           // how the stream ended
}

func newLegReader[L receiver](first L) legReader[L] {
	return legReader[L]{reading: make(chan struct{}, 1), in: first}
}

// dequeue returns the first of the queued messages, nil if there is none.
func (r *legReader[L]) dequeue() *call.Message {
	if len(r.queued) == 0 {
		return nil
	}
	m := r.queued[0]
	r.queued = slices.Delete(r.queued, 0, 1)
	return m
}

// drainOne receives one message of a leg that the stream leaves and passes it to store, unless
// the leg has been read to its end, perhaps by another goroutine. It reports whether there may
// be more messages. advance handles the end of the leg.
func (r *legReader[L]) drainOne(old L, store func(*call.Message) bool, advance func(error)) bool {
	select {
	case <-old.drained():
		return false
	case r.reading <- struct{}{}:
	}
	defer func() { <-r.reading }()
	if r.in != old || r.err != nil {
		return false
	}
	m, err := old.Recv()
	if err != nil {
		advance(err)
		return false
	}
	return store(m)
}

// enqueue queues a copy of a message: the memory of m may end with its leg.
func (r *legReader[L]) enqueue(m *call.Message) bool {
	r.queued = append(r.queued, copyMessage(m))
	return true
}

// copyMessage returns m in memory of its own, and frees m.
func copyMessage(m *call.Message) *call.Message {
	defer m.Free()
	data, err := m.Bytes()
	if err != nil {
		data = nil
	}
	own := &call.Message{Data: make([]byte, len(data)), Compressed: m.Compressed}
	copy(own.Data, data)
	return own
}
