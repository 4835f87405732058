package engine

import "time"

// eventClock is the time of an execution: that of this node or, if the events are from later, as after
// the clock was set back or on a node whose clock was ahead, the time that has passed since the latest
// event. Otherwise a task that waits a second would wait until this node's clock shows the time of that
// event.
type eventClock struct {
	latest time.Time // of the events
	read   time.Time // when this node applied the latest event
}

func (c *eventClock) set(latest time.Time) { c.latest, c.read = latest, time.Now() }

func (c *eventClock) now() time.Time {
	own, events := now(), c.latest.Add(time.Since(c.read))
	if own.Before(events) {
		return events
	}
	return own
}
