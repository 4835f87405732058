// Package proctree reports which processes of this machine descend from others.
package proctree

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descends reports whether a process is one of roots, is in the process group of one, or
// descends from one without leaving this process's tree: a child that has made a session of its
// own does, one whose parent has ended does not. For a process that is gone already it reports
// true, for it may have been one.
func Descends(pid int, roots []int) bool {
	if len(roots) == 0 {
		return false
	}
	group, err := unix.Getpgid(pid)
	if err != nil || slices.Contains(roots, group) {
		return true
	}
	// No chain of processes is endless, but it may change while it is followed.
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
