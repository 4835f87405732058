package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// percentile99 returns the 99th percentile of durations in milliseconds, 0 if there are none.
func percentile99(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	at := min(int(0.99*float64(len(sorted))), len(sorted)-1)
	return milliseconds(sorted[at])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed returns the duration of f, in milliseconds.
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return milliseconds(time.Since(began)), err
}

// A load holds the results of clients in a closed loop.
type load struct {
	done    int
	failed  []error
	times   []time.Duration
	perSec  float64
	elapsed time.Duration
}

// closedLoop makes clients send one request after another for a time.
func closedLoop(ctx context.Context, clients int, turn time.Duration, request func(context.Context) error) *load {
	var l load
	var mu sync.Mutex
	var wait sync.WaitGroup
	began := time.Now()
	for range clients {
		wait.Go(func() {
			var times []time.Duration
			var failed []error
			for time.Since(began) < turn && ctx.Err() == nil {
				sent := time.Now()
				if err := request(ctx); err != nil {
					failed = append(failed, err)
					continue
				}
				times = append(times, time.Since(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			l.times, l.failed = append(l.times, times...), append(l.failed, failed...)
		})
	}
	wait.Wait()
	l.elapsed, l.done = time.Since(began), len(l.times)
	l.perSec = float64(l.done) / l.elapsed.Seconds()
	return &l
}

// openLoop sends requests at a rate for a time, regardless of how long they take, and waits for
// all.
func openLoop(ctx context.Context, rate float64, turn time.Duration, request func(context.Context)) (elapsed time.Duration) {
	var wait sync.WaitGroup
	var sent int64
	began := time.Now()
	for time.Since(began) < turn && ctx.Err() == nil {
		for due := int64(time.Since(began).Seconds() * rate); sent < due; {
			sent++
			wait.Go(func() { request(ctx) })
		}
		time.Sleep(time.Millisecond)
	}
	wait.Wait()
	return time.Since(began)
}

// clockTick is the unit of processor time in /proc (USER_HZ).
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time of a process and its descendants.
func processorTime(pid int) time.Duration {
	var total time.Duration
	for _, p := range tree(pid) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		for _, f := range fields[11:13] { // utime, stime
			n, _ := strconv.Atoi(f)
			total += time.Duration(n) * clockTick
		}
	}
	return total
}

// idlePeriod is how long a process must have used next to no processor time to count as idle. The
// threads of llama-server spin for up to some 200 ms after their last token.
const idlePeriod = 300 * time.Millisecond

// awaitIdle waits until processes and their descendants are idle, so that what one of them still
// does does not slow down the measurement of another one.
func awaitIdle(ctx context.Context, pids ...int) error {
	used := func() (sum time.Duration) {
		for _, pid := range pids {
			sum += processorTime(pid)
		}
		return sum
	}
	for before := used(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(idlePeriod):
		}
		now := used()
		if now-before <= 2*clockTick {
			return nil
		}
		before = now
	}
}

// residentMemory returns the private memory of a process in MiB.
func residentMemory(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nRssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.Atoi(number)
	return float64(kib) / 1024
}

// tree returns a process and its descendants.
func tree(pid int) []int {
	list := []int{pid}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return list
	}
	for _, t := range tasks {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, tree(child)...)
			}
		}
	}
	return list
}
