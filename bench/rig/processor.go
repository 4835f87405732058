package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc (USER_HZ, the same on all Linux machines).
const clockTick = 10 * time.Millisecond

// Processor returns the processor time of the node's process: its own, and that of its children
// that have ended.
func (n *Node) Processor() (own, children time.Duration, err error) {
	return processor(strconv.Itoa(n.PID()))
}

// ProcessorOfAll returns the processor time of the node's process and of all processes that it has
// started, whether they have ended or not.
func (n *Node) ProcessorOfAll() time.Duration { return processorOfTree(strconv.Itoa(n.PID())) }

// processorOfTree returns the processor time of a process and its descendants, without processes
// that end in the meantime.
func processorOfTree(pid string) (all time.Duration) {
	own, ended, err := processor(pid)
	if err != nil {
		return 0
	}
	all = own + ended
	for _, id := range children(pid) {
		all += processorOfTree(id)
	}
	return all
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

// MachineProcessor returns the processor time of all processes on this machine since it was
// started.
func MachineProcessor() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat: a first line of an unknown form")
	}
	var all int64
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 {
			all += ticks
		}
	}
	return time.Duration(all) * clockTick, nil
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
