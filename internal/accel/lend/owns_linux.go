package lend

import "github.com/outboard-run/outboard/internal/proctree"

// Owns reports whether a process is a worker or comes of one: it is in a worker's
// group, which workers can't leave where the kernel filters their system calls,
// or descends from one. A process that is gone already may have been one.
func (h *Host) Owns(pid int) bool { return proctree.Descends(pid, h.workers()) }

func (h *Host) workers() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	pids := make([]int, 0, len(h.sessions))
	for _, s := range h.sessions {
		pids = append(pids, s.process.pid())
	}
	return pids
}
