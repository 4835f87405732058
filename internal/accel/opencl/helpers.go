package opencl

import "sync"

// helpers are the goroutines that wait for the driver beside the dispatcher. A driver call may
// never return, so the session ends without waiting for them; the end of the process ends them.
type helpers struct {
	events *events
	queues *queues

	group sync.WaitGroup
	slots chan struct{}
}

// maxWaits bounds the goroutines that wait for the driver. Each keeps a thread.
const maxWaits = 512

// acquireSlot reserves a slot for a goroutine that waits. It reports false when all slots are
// taken by goroutines that may depend on the client's next message.
func (h *helpers) acquireSlot() bool {
	select {
	case h.slots <- struct{}{}:
		return true
	default:
	}
	if len(h.events.unresolved) > 0 {
		return false
	}
	h.queues.flushAll()
	h.slots <- struct{}{}
	return true
}

// run runs a function on a new goroutine, or returns false when there is no free slot.
func (h *helpers) run(run func()) bool {
	if !h.acquireSlot() {
		return false
	}
	h.spawn(run)
	return true
}

// spawn runs a function in a slot that the caller has acquired.
func (h *helpers) spawn(run func()) {
	h.group.Go(func() {
		defer func() { <-h.slots }()
		run()
	})
}
