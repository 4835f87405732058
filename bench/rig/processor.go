package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc (USER_HZ, the same on all Linux machines).
const clockTick = 10 * time.Millisecond

// Processor is the processor time of the node's process: its own, and that of the children that
// have ended.
func (n *Node) Processor() (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may have any character.
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
func (n *Node) workers() (count int, err error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.PID()))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for id := range strings.FieldsSeq(string(text)) {
			command, err := os.ReadFile(filepath.Join("/proc", id, "cmdline"))
			if err == nil && strings.HasSuffix(string(command), "\x00worker\x00") {
				count++
			}
		}
	}
	return count, nil
}

// WaitIdle waits until the node has had no worker for a second: sessions have ended, and the
// kernels that they used are compiled for the next ones.
func (n *Node) WaitIdle(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	idle := time.Now()
	for time.Since(idle) < time.Second {
		count, err := n.workers()
		if err != nil {
			return err
		}
		if count > 0 {
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
