package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// schedule is what the kernel's scheduler has counted for threads (/proc/PID/task/TID/schedstat and
// status).
type schedule struct {
	running, waiting time.Duration // on a processor, and runnable without one
	preempted        int           // involuntary context switches
}

// processWaits holds the schedule of each thread of a node's processes, by the process's name and the
// thread.
type processWaits map[string]map[string]schedule

// readWaits reads the schedules of the node with a process ID and of its children. A thread that
// ends between two readings is not counted.
func readWaits(node int) processWaits {
	all := processWaits{"node": threadSchedules(strconv.Itoa(node))}
	for _, pid := range childrenOf(node) {
		all[processName(pid)] = threadSchedules(pid)
	}
	return all
}

// processName returns the subcommand that a node's helper process executes, and its process ID.
func processName(pid string) string {
	args, _ := os.ReadFile("/proc/" + pid + "/cmdline") // a process that has ended has none
	_, role, _ := strings.Cut(strings.ReplaceAll(string(args), "\x00", " "), " internal ")
	return strings.TrimSpace(role) + " " + pid
}

func childrenOf(pid int) []string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []string
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

func threadSchedules(pid string) map[string]schedule {
	threads := map[string]schedule{}
	dirs, _ := filepath.Glob("/proc/" + pid + "/task/*")
	for _, dir := range dirs {
		var s schedule
		text, err := os.ReadFile(dir + "/schedstat")
		if err != nil {
			continue // it has ended
		}
		_, _ = fmt.Sscan(string(text), &s.running, &s.waiting) // nanoseconds; zeros without CONFIG_SCHED_INFO
		status, _ := os.ReadFile(dir + "/status")
		if _, rest, ok := strings.Cut(string(status), "nonvoluntary_ctxt_switches:"); ok {
			_, _ = fmt.Sscan(rest, &s.preempted)
		}
		threads[filepath.Base(dir)] = s
	}
	return threads
}

// printWaits prints what each process did between two readings, for each of so many requests.
func printWaits(w io.Writer, what string, before, after processWaits, requests int) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		var sum schedule
		for id, s := range after[name] {
			then := before[name][id]
			sum.running += s.running - then.running
			sum.waiting += s.waiting - then.waiting
			sum.preempted += s.preempted - then.preempted
		}
		n := max(requests, 1)
		fmt.Fprintf(w, "%s, %d requests: %-24s %8.1f us running, %8.1f us runnable without a processor, %5.2f times preempted, for each\n",
			what, requests, name, us(sum.running)/float64(n), us(sum.waiting)/float64(n), float64(sum.preempted)/float64(n))
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
