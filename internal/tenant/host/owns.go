package host

import (
	"maps"
	"slices"

	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/proctree"
)

// Owns reports whether a process is that of a tenant, or descends from one, until it has ended: also
// when the tenant has no apps any more. Without control groups a process whose parent has ended is
// not recognized.
func (h *Host) Owns(pid int) bool {
	var pids []int
	var groups []*cgroup.Group
	for _, s := range h.all() {
		s.mu.Lock()
		if numbered, ok := s.process.(interface{ PID() int }); ok {
			pids = append(pids, numbered.PID())
		}
		groups = append(groups, s.group)
		s.mu.Unlock()
	}
	return slices.ContainsFunc(groups, func(g *cgroup.Group) bool { return g.Contains(pid) }) || proctree.Descends(pid, pids)
}

// all returns all supervisors whose processes may run.
func (h *Host) all() []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(h.tenants)), maps.Keys(h.ending))
}
