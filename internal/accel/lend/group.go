package lend

import (
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
)

// Control groups are nested: one per lease, whose weight sets its share of processor time, and in
// it one per session, whose processes end with it.

// maxLeaseTasks bounds the processes and threads of all sessions of a lease.
const maxLeaseTasks = 4 * maxTasks

// machineMemory returns the memory of this machine.
func machineMemory() outboard.Bytes {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return outboard.Bytes(info.Totalram) * outboard.Bytes(info.Unit)
}

// groupMemory returns the memory limit of the control group of sessions that may use host memory
// beyond the device memory of their lease: a device may be the machine's processor, and its memory
// the machine's. The node always keeps an eighth of the machine's memory.
func groupMemory(spec *Spec, host outboard.Bytes) int64 {
	device := spec.Lease.Memory
	if device == 0 {
		device = spec.Device.Memory
	}
	all := machineMemory() / 8 * 7
	if device >= all || host >= all-device {
		return int64(all)
	}
	return int64(device + host)
}

// GroupMemory returns the memory limit, in bytes, of the control group of processes outside of
// sessions that use the devices of several leases: each lease adds its device memory and a
// session's limit of host memory, up to seven eighths of the machine's memory.
func (h *Host) GroupMemory(specs []Spec) int64 {
	var sum int64
	for i := range specs {
		sum += groupMemory(&specs[i], h.opts.Sandbox.Memory)
	}
	return min(sum, int64(machineMemory()/8*7))
}

// makeGroup creates the control group of a session, and for the lease's first session that of the
// lease.
func (s *Session) makeGroup() (*cgroup.Group, error) {
	host := s.host.opts.Sandbox.Memory
	s.lease.grouping.Lock()
	defer s.lease.grouping.Unlock()
	if s.lease.group == nil {
		group, err := s.host.opts.Groups.Make("lease-"+string(newID()), cgroup.Limits{
			Memory: groupMemory(&s.Spec, 2*host), Tasks: maxLeaseTasks, Weight: cgroup.DefaultWeight * s.weight(), Load: 1,
		})
		if err != nil {
			return nil, err
		}
		s.lease.group = group
	}
	return s.lease.group.Make("session-"+string(s.ID), cgroup.Limits{Memory: groupMemory(&s.Spec, host), Tasks: maxTasks})
}

// weight returns the lease's share of the device's and the processor's time. The holder's node
// chooses it.
func (s *Session) weight() int { return min(max(s.Lease.Weight, 1), outboard.MaxWeight) }

// inspectGroups adds a process to a control group, or returns why it can't.
func (h *Host) inspectGroups(p *process) error {
	if err := h.opts.Groups.Err(); err != nil {
		return err
	}
	group, err := h.opts.Groups.Make("inspect", cgroup.Limits{Memory: int64(h.opts.Sandbox.Memory), Tasks: maxTasks})
	if err != nil {
		return err
	}
	p.group = group
	return group.Add(p.pid())
}
