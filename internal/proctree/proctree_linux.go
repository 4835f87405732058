// Package proctree determines whether processes of this machine descend from others.
package proctree

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descends reports whether a process is one of roots, is in the process group of a root, or
// descends from a root within this process's tree. A child that has started its own session still
// descends, but a process whose parent has ended does not. For a process that has ended it reports
// true, since the process may have descended.
func Descends(pid int, roots []int) bool {
	if len(roots) == 0 {
		return false
	}
	group, err := unix.Getpgid(pid)
	if err != nil || slices.Contains(roots, group) {
		return true
	}
	// The bound ends the walk if the chain of processes changes meanwhile.
	for range 1000 {
		if slices.Contains(roots, pid) {
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
	return slices.Contains(roots, pid)
}

// parentOf reads the parent from /proc/PID/stat: number, name in brackets, state, parent.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name may contain brackets and spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
