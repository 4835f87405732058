package opencl

import (
	"github.com/outboard-run/outboard/internal/accel/session"
)

type message = session.Message

// addEvent takes charge of the event that a command of the client has made.
func (w *Worker) addEvent(c *call, handle uintptr) {
	w.enter(c, kindEvent, c.event, handle, clSuccess)
	item := &pending{queue: c.queue, event: handle, id: c.event}
	item.count()
	w.pending.add(item)
}

// holdEvent keeps the event of a command that the client wants none of.
func (w *Worker) holdEvent(c *call, handle uintptr) {
	item := &pending{queue: c.queue, event: handle, owned: true}
	item.count()
	w.pending.add(item)
}

// failedMeanwhile reports whether an event's command is known to have failed
// since the driver took it. What depends on it must not get to the driver: there
// are some that never end a command whose wait list had failed before.
func (w *Worker) failedMeanwhile(id uint64) bool {
	p := &w.pending
	if p.count.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	item := p.byID[id]
	return item != nil && w.eventStatus(item.event) < 0
}

// onComplete makes the completer look when the event is complete.
func (w *Worker) onComplete(event uintptr) {
	addr, token := w.opts.Callbacks.Event(func(int32) { w.pending.poke() })
	if addr == 0 || int32(w.drv.Call(fnClSetEventCallback, event, clComplete, addr, token)) != clSuccess {
		w.opts.Callbacks.Drop(token)
		w.pending.poke()
	}
}

func (w *Worker) doClCreateUserEvent(m *message, a *argsClCreateUserEvent) error {
	c := w.begin(m)
	status := w.create(c, fnClCreateUserEvent, kindEvent, a.Result, c.handle(kindContext, a.Context), c.errcode())
	if status == clSuccess {
		w.unresolved[a.Result] = true
		w.gated.Store(true)
	}
	return w.finish(c, status)
}

func (w *Worker) doClSetUserEventStatus(m *message, a *argsClSetUserEventStatus) error {
	c := w.begin(m)
	handle := c.handle(kindEvent, a.Event)
	if c.status == clSuccess && !w.unresolved[a.Event] {
		c.fail(clInvalidOperation) // it is set already, or a command's
	}
	status := w.setUserEvent(c, handle, a.ExecutionStatus)
	if status == clSuccess {
		w.resolved(a.Event)
		if a.ExecutionStatus < 0 {
			e, _ := w.objects.Any(a.Event)
			e.Failed = clExecStatusError
			w.objects.Replace(a.Event, e)
			// PoCL calls nobody back for what fails with it.
			w.pending.poke()
		}
	}
	return w.finish(c, status)
}

// setUserEvent sets one off. A failure runs through all that waits for it before
// the driver returns, and PoCL looks at the events of that chain after it has let
// go of them: nobody may give up the last hold of one meanwhile.
func (w *Worker) setUserEvent(c *call, handle uintptr, status int32) int32 {
	p := &w.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = p.failing || status < 0
	return w.invoke(c, fnClSetUserEventStatus, handle, uintptr(status))
}

// failedUserEvent is the status of a user event that was given up, as the driver
// takes it.
const failedUserEvent = ^uintptr(0)

// failedEvent makes the event of a command that could not be submitted. It has
// no handle: what waits for it fails here, since drivers are known to wait for
// ever for an event that had failed before they were told to wait.
func (w *Worker) failedEvent(c *call) error {
	if err := w.objects.Add(c.event, session.Entry{Kind: kindEvent, Failed: clExecStatusError}); err != nil {
		return w.malformed(c.m, err)
	}
	return nil
}

// doWatch has an event's completion told at once instead of with the next
// synchronisation.
func (w *Worker) doWatch(m *message, a *argsWatch) error {
	c := w.begin(m)
	handle := c.handle(kindEvent, a.Event)
	if c.status != clSuccess || handle == 0 {
		return nil // a failed notice has told it already
	}
	p := &w.pending
	p.mu.Lock()
	item := p.byID[a.Event]
	if item != nil {
		item.watched = true
	}
	p.mu.Unlock()
	if item == nil {
		// Complete and settled, or a user event, of which the client knows.
		if err := w.synchronised(); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return w.tellEvent(a.Event, handle, w.eventStatus(handle), false)
	}
	w.onComplete(handle)
	return nil
}

// resolved notes that a user event is set.
func (w *Worker) resolved(id uint64) {
	delete(w.unresolved, id)
	w.gated.Store(len(w.unresolved) > 0)
}

// releaseEvent gives up the client's hold of an event. A command that is still
// pending keeps the handle until it is complete.
func (w *Worker) releaseEvent(id uint64, handle uintptr) {
	p := &w.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.unresolved[id] {
		// Nobody can set it any more: what waits for it would wait for ever,
		// and we with it.
		w.drv.Call(fnClSetUserEventStatus, handle, failedUserEvent)
		w.resolved(id)
		p.failing = true
		p.poke()
	}
	item := p.byID[id]
	if item == nil {
		w.drv.Call(fnClReleaseEvent, handle)
		return
	}
	delete(p.byID, id)
	item.id, item.owned = 0, true
}
