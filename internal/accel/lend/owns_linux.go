package lend

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Owns reports whether a process is a worker or comes of one: it is in a worker's
// group, which workers can't leave where the kernel filters their system calls,
// or descends from one. A process that is gone already may have been one.
func (h *Host) Owns(pid int) bool {
	workers := h.workers()
	if len(workers) == 0 {
		return false
	}
	group, err := unix.Getpgid(pid)
	if err != nil || slices.Contains(workers, group) {
		return true
	}
	// No chain of processes is endless, but it may change while it is followed.
	for range 1000 {
		if slices.Contains(workers, pid) {
			return true
		}
		parent, ok := parentOf(pid)
		if !ok {
			return true
		}
		if parent <= 1 || parent == os.Getpid() {
			break
		}
		pid = parent
	}
	return slices.Contains(workers, pid)
}

func (h *Host) workers() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	pids := make([]int, 0, len(h.sessions))
	for _, s := range h.sessions {
		pids = append(pids, s.process.pid())
	}
	return pids
}

// parentOf reads /proc/PID/stat: number, name in brackets, state, parent.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name may have brackets and spaces of its own.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
