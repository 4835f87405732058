package overhead

import "github.com/outboard-run/outboard/internal/accel/trace"

// completionTracker tracks which commands the driver library knows to be complete. The library answers
// a wait for such commands locally (cmd/libopencl: ob_clFinish, event_wait_all); traces of remote runs
// record such answers.
type completionTracker struct {
	queues map[queueKey]*progress
	events map[queueKey]position
	order  []queueKey // of events, oldest first
}

// progress counts the commands of a queue, and how many of them are known to be complete.
type progress struct {
	recency
	sent, finished int64
}

// position is a command's place in its queue; inOrder says that all commands before it are complete
// when it is.
type position struct {
	queue   *progress
	at      int64
	inOrder bool
}

// maxKnownEvents bounds the events whose commands are remembered.
const maxKnownEvents = 4096

func (k *completionTracker) init() {
	k.queues, k.events = map[queueKey]*progress{}, map[queueKey]position{}
}

// answersLocally reports whether the library answers the call from the completions that it knows,
// and records the completions that the call reveals.
func (k *completionTracker) answersLocally(r *trace.Record) bool {
	if r.Queue == 0 && len(r.Waits) == 0 {
		return false
	}
	q := k.queue(r)
	if r.Command {
		k.enqueue(q, r)
		return false
	}
	if r.Blocking != trace.HostBlocking {
		return false
	}
	if len(r.Waits) > 0 {
		return k.waitForEvents(r)
	}
	local := q.sent > 0 && q.finished >= q.sent
	q.finished = q.sent
	return local
}

// idle reports whether all commands before the record's on its queue are known to be complete.
func (k *completionTracker) idle(r *trace.Record) bool {
	q := k.queue(r)
	return q.finished >= q.sent-1 // without the command itself
}

func (k *completionTracker) queue(r *trace.Record) *progress {
	key := queueKey{r.Process, r.Queue}
	q := k.queues[key]
	if q == nil {
		if len(k.queues) >= maxQueues {
			removeIdlest(k.queues)
		}
		q = &progress{}
		k.queues[key] = q
	}
	q.used = r.End
	return q
}

func (k *completionTracker) enqueue(q *progress, r *trace.Record) {
	q.sent++
	waited := r.Blocking == trace.HostBlocking && r.Class == trace.WaitedFor
	if waited && !r.OutOfOrder {
		q.finished = q.sent
	}
	if r.Event == 0 {
		return
	}
	if len(k.order) == maxKnownEvents {
		delete(k.events, k.order[0])
		k.order = k.order[1:]
	}
	key := queueKey{r.Process, r.Event}
	k.events[key] = position{q, q.sent, !r.OutOfOrder}
	k.order = append(k.order, key)
}

func (k *completionTracker) waitForEvents(r *trace.Record) bool {
	local := true
	for _, id := range r.Waits {
		e, ok := k.events[queueKey{r.Process, id}]
		if !ok || e.queue.finished < e.at {
			local = false
		}
		if ok && e.inOrder {
			e.queue.finished = max(e.queue.finished, e.at)
		}
	}
	return local
}
