package lend

import "github.com/outboard-run/outboard/internal/cgroup"

// priority suspends a session where the device is the machine's processor: it moves the session's
// control group to the kernel's idle class, or stops the worker where there is no such group. The
// lock of deviceTurns guards it.
type priority struct {
	process *process
	group   *cgroup.Idle // nil: the worker is stopped
	lease   *leasePriority
	low     bool
	stopped bool
}

// leasePriority is the priority of a lease. The idle class of a group counts among its siblings
// only, so the group of a lease is idle, too, while a session of it is suspended and another lease
// has the turn: the weight of the group would otherwise entitle the session to a share beside that
// turn.
type leasePriority struct {
	group *cgroup.Idle
	low   int // sessions
}

// newPriority opens the switches of the session's control group and of its lease's.
func (s *Session) newPriority() priority {
	p := priority{process: s.process, lease: s.lease.priority}
	if !s.turns.background {
		return p
	}
	s.lease.grouping.Lock()
	defer s.lease.grouping.Unlock()
	var err error
	if p.lease.group == nil {
		p.lease.group, err = s.lease.group.OpenIdle()
	}
	if err == nil {
		p.group, err = s.process.group.OpenIdle()
	}
	if err != nil {
		s.host.opts.Log.Warn("a session is stopped between its turns", "session", s.ID, "reason", err)
	}
	return p
}

// suspend lowers the session's priority until resume. holder is the lease that has the turn.
func (p *priority) suspend(holder *leasePriority) {
	if p.low {
		return
	}
	p.low = true
	if p.group == nil || p.group.Set(true) != nil {
		p.stopped = true
		p.process.suspend()
		return
	}
	p.lease.low++
	p.lease.update(holder)
}

// resume restores the session's priority.
func (p *priority) resume(holder *leasePriority) {
	switch {
	case !p.low:
		return
	case p.stopped:
		p.process.resume()
	default:
		_ = p.group.Set(false) // fails only when the group is removed
		p.lease.low--
		p.lease.update(holder)
	}
	p.low, p.stopped = false, false
}

// close closes the session's switch.
func (p *priority) close() { _ = p.group.Close() }

// update moves the lease's group to the class that it should have.
func (l *leasePriority) update(holder *leasePriority) {
	if l != nil {
		_ = l.group.Set(l.low > 0 && l != holder) // fails only when the group is removed
	}
}
