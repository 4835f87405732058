package lend

import "github.com/outboard-run/outboard/internal/proctree"

// Owns reports whether a process is a worker or a worker's descendant: it is in a worker's process
// group, which workers can't leave where the kernel filters their system calls, or descends from a
// worker. It also returns true for some processes that have ended.
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
