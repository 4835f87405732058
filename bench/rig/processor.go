package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of processor times in /proc (USER_HZ, the same on all Linux machines).
const clockTick = 10 * time.Millisecond

// Processor returns the processor time of the node's process: its own, and that of its children
// that have ended.
func (n *Node) Processor() (own, children time.Duration, err error) {
	return processor(strconv.Itoa(n.PID()))
}

// OwnProcessor returns the processor time of this process and of all its descendants, whether they
// have ended or not: of the bench, its nodes and the programs that it runs.
func OwnProcessor() (all time.Duration, err error) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var use syscall.Rusage
		if err := syscall.Getrusage(who, &use); err != nil {
			return 0, err
		}
		all += time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	for _, id := range children(strconv.Itoa(os.Getpid())) {
		all += settled(id)
	}
	return all, nil
}

// settled returns the processor time of a process and its descendants, read again while one of them
// ends: its time may be missing, or be counted as its parent's too.
func settled(pid string) (all time.Duration) {
	for range 10 {
		var changed bool
		if all, changed = processorOfTree(pid); !changed {
			break
		}
	}
	return all
}

// processorOfTree returns the processor time of a process and its descendants, and whether one of
// them ended in the meantime.
func processorOfTree(pid string) (all time.Duration, changed bool) {
	own, ended, err := processor(pid)
	if err != nil {
		return 0, true
	}
	all = own + ended
	for _, id := range children(pid) {
		child, left := processorOfTree(id)
		all, changed = all+child, changed || left
	}
	_, now, err := processor(pid)
	return all, changed || err != nil || now != ended
}

// children returns the running child processes of a process.
func children(pid string) (ids []string) {
	paths, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		return nil
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		ids = append(ids, strings.Fields(string(text))...)
	}
	return ids
}

// usageFile has the processor time of all tasks of this machine in ns, where version 1 of the
// control groups counts it.
const usageFile = "/sys/fs/cgroup/cpuacct/cpuacct.usage"

// MachineProcessor returns the processor time of all processes on this machine since it was
// started, and the time in which the host of a virtual machine withheld processors that had work
// (proc_stat(5), steal). Both have the resolution of a clock tick, the first that of a nanosecond
// where control groups count it.
func MachineProcessor() (used, stolen time.Duration, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	if used, stolen, err = parseStat(string(text)); err != nil {
		return 0, 0, err
	}
	if text, err := os.ReadFile(usageFile); err == nil {
		if ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			used = time.Duration(ns)
		}
	}
	return used, stolen, nil
}

// parseStat returns the times in the first line of /proc/stat. Interrupts count as use: the kernel
// charges them to the process that they interrupt.
func parseStat(text string) (used, stolen time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, errors.New("/proc/stat: a first line of an unknown form")
	}
	var ticks [8]int64 // user nice system idle iowait irq softirq steal
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[1+i], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	busy := ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
	return time.Duration(busy) * clockTick, time.Duration(ticks[7]) * clockTick, nil
}

func processor(pid string) (own, children time.Duration, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may contain any character.
	_, rest, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 15 {
		return 0, 0, errors.New("/proc: a stat of an unknown form")
	}
	var ticks [4]int64 // utime, stime, cutime, cstime: fields 14 to 17
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return time.Duration(ticks[0]+ticks[1]) * clockTick, time.Duration(ticks[2]+ticks[3]) * clockTick, nil
}

// workers counts the running processes of sessions and of compile steps that the node has started.
func (n *Node) workers() (count int) {
	for _, id := range children(strconv.Itoa(n.PID())) {
		command, err := os.ReadFile("/proc/" + id + "/cmdline")
		if err == nil && strings.HasSuffix(string(command), "\x00worker\x00") {
			count++
		}
	}
	return count
}

// WaitIdle waits until the node has had no worker for a second: sessions have ended, and the
// kernels that they used are compiled for later sessions.
func (n *Node) WaitIdle(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	idle := time.Now()
	for time.Since(idle) < time.Second {
		if n.workers() > 0 {
			idle = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
