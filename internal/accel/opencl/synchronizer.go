package opencl

import "github.com/outboard-run/outboard/internal/accel/driver"

// synchronizer executes the calls that order commands or wait for them: flush, finish
// and user events.
type synchronizer struct {
	drv     *driver.Table
	caller  *caller
	client  *client
	objects *objects
	events  *events
	queues  *queues
	helpers *helpers
}

func (s *synchronizer) doClFlush(m *message, a *argsClFlush) error {
	c := s.caller.begin(m)
	handle := c.handle(kindQueue, a.CommandQueue)
	if c.status != clSuccess || handle == 0 {
		return s.caller.finish(c, s.caller.invoke(c, fnClFlush, handle))
	}
	s.queues.flushAll() // this queue's commands may wait for commands of other queues
	s.queues.flush(c.queue)
	return s.caller.finish(c, clSuccess)
}

func (s *synchronizer) doClFinish(m *message, a *argsClFinish) error {
	c := s.caller.begin(m)
	handle := c.handle(kindQueue, a.CommandQueue)
	if c.status != clSuccess || handle == 0 {
		return s.caller.finish(c, s.caller.invoke(c, fnClFinish, handle))
	}
	s.queues.flushAll()
	if alone(m) {
		status := s.queues.callAndWait(fnClFinish, handle)
		c.queue.markIdle()
		if err := s.events.synchronize(); err != nil {
			return err
		}
		return s.caller.finish(c, status)
	}
	// The marker stands for the commands queued so far: the call does not wait for commands that
	// other threads queue later.
	out := c.memory(8)
	status := c.status
	if status == clSuccess {
		status = int32(s.drv.Call(fnClEnqueueMarkerWithWaitList, handle, 0, 0, driver.Address(out)))
	}
	if status != clSuccess {
		return s.caller.finish(c, status)
	}
	s.queues.flush(c.queue)
	marker, t, q, last := uintptr(firstWord(out)), c.ticket(), c.queue, c.queue.submitted
	if s.helpers.run(func() {
		s.events.waitFor(marker)
		s.events.failed.release(marker)
		q.markReached(last)
		// The failure of a command is reported by its event, not by clFinish.
		s.client.fail(s.events.synchronizeAndAnswer(t, clSuccess, nil))
	}) {
		return nil
	}
	s.events.failed.release(marker)
	return s.caller.finish(c, clOutOfHostMemory)
}

func (s *synchronizer) doClWaitForEvents(m *message, a *argsClWaitForEvents) error {
	c := s.caller.begin(m)
	list := c.handles(kindEvent, a.EventList)
	if c.status != clSuccess || list == 0 {
		return s.caller.finish(c, s.caller.invoke(c, fnClWaitForEvents, uintptr(len(a.EventList)), list))
	}
	s.queues.flushAll()
	if alone(m) {
		status := s.queues.callAndWait(fnClWaitForEvents, uintptr(len(a.EventList)), list)
		if err := s.events.synchronize(); err != nil {
			return err
		}
		return s.caller.finish(c, status)
	}
	events := make([]uintptr, len(a.EventList))
	for i, id := range a.EventList {
		e, _ := s.objects.table.Get(id, kindEvent)
		events[i] = e.Handle
		s.drv.Call(fnClRetainEvent, e.Handle)
	}
	release := func() {
		for _, e := range events {
			s.events.failed.release(e)
		}
	}
	t := c.ticket()
	if s.helpers.run(func() {
		status := s.events.waitFor(events...)
		release()
		s.client.fail(s.events.synchronizeAndAnswer(t, status, nil))
	}) {
		return nil
	}
	release()
	return s.caller.finish(c, clOutOfHostMemory)
}

func (s *synchronizer) doClCreateUserEvent(m *message, a *argsClCreateUserEvent) error {
	c := s.caller.begin(m)
	status := s.caller.create(c, fnClCreateUserEvent, kindEvent, a.Result, c.handle(kindContext, a.Context), c.errcode())
	if status == clSuccess {
		s.events.unresolved[a.Result] = true
		s.events.gated.Store(true)
	}
	return s.caller.finish(c, status)
}

func (s *synchronizer) doClSetUserEventStatus(m *message, a *argsClSetUserEventStatus) error {
	c := s.caller.begin(m)
	handle := c.handle(kindEvent, a.Event)
	if c.status == clSuccess && !s.events.unresolved[a.Event] {
		c.fail(clInvalidOperation) // the event is set already, or belongs to a command
	}
	status := s.setUserEvent(c, handle, a.ExecutionStatus)
	if status == clSuccess {
		s.events.markResolved(a.Event)
		if a.ExecutionStatus < 0 {
			e, _ := s.objects.table.Any(a.Event)
			e.Failed = clExecStatusError
			s.objects.table.Replace(a.Event, e)
			// PoCL invokes no callback for commands that fail with the event.
			s.events.pending.wakeCompleter()
		}
	}
	return s.caller.finish(c, status)
}

// setUserEvent sets a user event's status. A failure propagates through all commands that wait for
// the event before the driver returns, and PoCL reads the events of that chain after it has
// released them: no last reference to one of them may be dropped meanwhile.
func (s *synchronizer) setUserEvent(c *call, handle uintptr, status int32) int32 {
	p := &s.events.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = p.failing || status < 0
	return s.caller.invoke(c, fnClSetUserEventStatus, handle, uintptr(status))
}

// doWatch has an event's completion reported at once instead of at the next synchronization.
func (s *synchronizer) doWatch(m *message, a *argsWatch) error {
	c := s.caller.begin(m)
	handle := c.handle(kindEvent, a.Event)
	if c.status != clSuccess || handle == 0 {
		return nil // reported by a failed notice
	}
	p := &s.events.pending
	p.mu.Lock()
	item := p.byID[a.Event]
	if item != nil {
		item.watched = true
	}
	p.mu.Unlock()
	if item == nil {
		// The command is complete and reported, or the event is a user event, whose status the
		// client knows.
		if err := s.events.synchronize(); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return s.events.reportEvent(a.Event, handle, s.events.status(handle), false)
	}
	s.events.notifyOnCompletion(handle)
	return nil
}
