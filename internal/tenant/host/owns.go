package host

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outboard-run/outboard/internal/proctree"
)

// Owns reports whether a process is that of a tenant, or descends from one, until it has ended: also
// when the tenant has no apps any more. Without control groups a process whose parent has ended is
// not recognized.
func (h *Host) Owns(pid int) bool { return h.Owner(pid) != "" }

// Owner returns the tenant of a process that Owns recognizes, "" for others. For a process that has
// ended it is any tenant.
func (h *Host) Owner(pid int) (tenant string) {
	var pids []int
	var tenants []string
	for _, s := range h.all() {
		s.mu.Lock()
		process, group := s.process, s.group
		s.mu.Unlock()
		if group.Contains(pid) {
			return s.config.Tenant
		}
		if numbered, ok := process.(interface{ PID() int }); ok {
			pids, tenants = append(pids, numbered.PID()), append(tenants, s.config.Tenant)
		}
	}
	if !proctree.Descends(pid, pids) {
		return ""
	}
	for i := range pids {
		if proctree.Descends(pid, pids[i:i+1]) {
			tenant = tenants[i]
			break
		}
	}
	return cmp.Or(tenant, tenants[0])
}

// all returns all supervisors whose processes may run.
func (h *Host) all() []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(h.tenants)), maps.Keys(h.ending))
}
