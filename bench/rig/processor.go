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

// Children are the processes that the node's process has started and that run, by their ids.
func (n *Node) Children() (map[string]bool, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.PID()))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for id := range strings.FieldsSeq(string(text)) {
			all[id] = true
		}
	}
	return all, nil
}

// WaitIdle waits until the node's process has had no other children than these for a second: the
// workers have ended, and kernels are compiled for the next time.
func (n *Node) WaitIdle(ctx context.Context, besides map[string]bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	idle := time.Now()
	for time.Since(idle) < time.Second {
		children, err := n.Children()
		if err != nil {
			return err
		}
		for id := range children {
			if !besides[id] {
				idle = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
