package host

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/quota"
)

// maxTasks bounds the threads of a tenant's process, and the processes that a guest that broke out
// starts.
const maxTasks = 8192

// enterGroup moves a process that waits for its configuration into a control group of its tenant.
// All tenants have the same weight, and none gets the machine's whole memory.
func (s *supervisor) enterGroup(proc Launched) (*cgroup.Group, error) {
	numbered, ok := proc.(interface{ PID() int })
	if !ok {
		return nil, nil //nolint:nilnil // it is no process of its own
	}
	sum := sha256.Sum256([]byte(s.config.Tenant))
	// An earlier process of the tenant, in a group of its own, may not have ended yet.
	name := fmt.Sprintf("tenant-%x-%d", sum[:8], numbered.PID())
	group, err := s.host.opts.Groups.Make(name, cgroup.Limits{
		Memory: cmp.Or(int64(s.config.Limits[quota.Memory]), maxMemory()), Tasks: maxTasks, Weight: cgroup.DefaultWeight, Load: 2,
	})
	if err != nil {
		return nil, err
	}
	return group, group.Add(numbered.PID())
}

// maxMemory returns three quarters of the machine's memory; 0, no limit, if its size is not known.
func maxMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit) / 4 * 3
}
