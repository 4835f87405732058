package host

import (
	"maps"
	"slices"

	"github.com/outboard-run/outboard/internal/proctree"
)

// Owns reports whether a process is that of a tenant, or descends from one, until it has ended: also
// when the tenant has no apps any more. Without control groups a process whose parent has ended is
// not recognized.
func (h *Host) Owns(pid int) bool { return h.Owner(pid) != "" }

// Owner returns the tenant of a process that Owns recognizes, "" for others.
func (h *Host) Owner(pid int) (tenant string) {
	for _, s := range h.all() {
		s.mu.Lock()
		process, group := s.process, s.group
		s.mu.Unlock()
		numbered, ok := process.(interface{ PID() int })
		if group.Contains(pid) || ok && proctree.Descends(pid, []int{numbered.PID()}) {
			return s.config.Tenant
		}
	}
	return ""
}

// all returns all supervisors whose processes may run.
func (h *Host) all() []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(h.tenants)), maps.Keys(h.ending))
}
