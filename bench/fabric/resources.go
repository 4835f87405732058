package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// resources counts the resources that processes have used.
type resources struct {
	CPU float64 // seconds of processor time
	// Switches counts the times that a thread went to sleep.
	Switches float64
}

func (u resources) plus(v resources) resources {
	return resources{u.CPU + v.CPU, u.Switches + v.Switches}
}

func (u resources) minus(v resources) resources {
	return resources{u.CPU - v.CPU, u.Switches - v.Switches}
}

// usage returns the resources that this process has used.
func usage() (resources, error) { return usageFrom(syscall.RUSAGE_SELF) }

func usageFrom(who int) (resources, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return resources{}, err
	}
	return resources{time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), float64(u.Nvcsw)}, nil
}

// familyUsage returns the resources that this process and its children have used, those that have
// ended included.
func familyUsage() (resources, error) {
	total, err := usage()
	if err != nil {
		return total, err
	}
	ended, err := usageFrom(syscall.RUSAGE_CHILDREN)
	if err != nil {
		return total, err
	}
	total = total.plus(ended)
	for _, pid := range childrenOf(os.Getpid()) {
		if used, err := usageOf(pid); err == nil { // else it has just ended
			total = total.plus(used)
		}
	}
	return total, nil
}

// childrenOf returns the processes that a process has started.
func childrenOf(parent int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if fields, err := statOf(pid); err == nil && fields[statParent] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// The fields of /proc/PID/stat after the name of the program (proc(5)).
const (
	statParent     = 1
	statUserTime   = 11
	statSystemTime = 12
)

// statOf returns the fields of /proc/PID/stat after the name of the program, which may have blanks.
func statOf(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	at := strings.LastIndex(string(stat), ") ")
	fields := strings.Fields(string(stat[at+1:]))
	if at < 0 || len(fields) <= statSystemTime {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// ticksPerSecond is the unit of processor times in /proc (proc(5), USER_HZ).
const ticksPerSecond = 100

// usageOf returns the resources that another process has used, from proc(5).
func usageOf(pid int) (resources, error) {
	var used resources
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return used, err
	}
	for _, path := range tasks {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		_, after, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		var n float64
		if _, err := fmt.Sscan(after, &n); err != nil {
			return used, fmt.Errorf("%s: %w", path, err)
		}
		used.Switches += n
	}
	fields, err := statOf(pid)
	if err != nil {
		return used, err
	}
	for _, field := range fields[statUserTime : statSystemTime+1] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return used, err
		}
		used.CPU += ticks / ticksPerSecond
	}
	return used, nil
}
