package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// Variables of the environment by which this program measures itself: the first process enters the
// sandbox if its configuration says so, and executes the program again, as a worker does.
const (
	enterVariable = "OUTBOARD_BENCH_ENTER"
	workVariable  = "OUTBOARD_BENCH_WORK"
)

// role plays the role of a measurement's process, and reports whether this process has one.
func role() (status int, ok bool) {
	if os.Getenv(workVariable) != "" {
		work()
		return 0, true
	}
	if flood := os.Getenv(floodVariable); flood != "" {
		return runFlood(flood, os.Getenv(floodAddr)), true
	}
	text := os.Getenv(enterVariable)
	if text == "" {
		return 0, false
	}
	var one [1]byte
	_, _ = os.Stdin.Read(one[:]) // until it is in its control group, as a worker waits for its configuration
	environ := []string{workVariable + "=" + os.Getenv("OUTBOARD_BENCH_ROUNDS")}
	if text == "plain" {
		return failed(syscall.Exec("/proc/self/exe", os.Args, environ)), true
	}
	var c sandbox.Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return failed(err), true
	}
	in, err := sandbox.Enter(c)
	if err == nil {
		err = in.Exec(os.Args, environ)
	}
	return failed(err), true
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// work does nothing for "0" rounds, and otherwise computes and copies memory for about a quarter of
// a second, as kernels do, and prints how long that took.
func work() {
	if os.Getenv(workVariable) == "0" {
		return
	}
	from, to := make([]byte, 16<<20), make([]byte, 16<<20)
	x := uint32(1)
	began := time.Now()
	for range 20 {
		for range 4 << 20 {
			x = x*1664525 + 1013904223
		}
		copy(to, from)
	}
	fmt.Fprintln(os.Stdout, time.Since(began).Seconds(), x&1)
}

// sandboxCost measures the cost of a worker's sandbox and control group.
func (b *bench) sandboxCost(ctx context.Context) error {
	groups := cgroup.Open("attackbench")
	defer groups.Close()
	var starts, plain, speeds, plainSpeeds []float64
	for i := range b.Rounds(60, 15) + 1 {
		for _, isolate := range []bool{i%2 == 0, i%2 != 0} {
			took, _, err := b.startProcess(ctx, groups, isolate, "0")
			if err != nil {
				return err
			}
			_, speed, err := b.startProcess(ctx, groups, isolate, "1")
			switch {
			case err != nil:
				return err
			case i == 0: // a first turn does not count
			case isolate:
				starts, speeds = append(starts, took), append(speeds, speed)
			default:
				plain, plainSpeeds = append(plain, took), append(plainSpeeds, speed)
			}
		}
	}
	name := "start of a worker's process in its sandbox"
	if groups.Err() == nil {
		name += " and control group"
	}
	row := paired.NewRow(name, "ms", "without", starts, plain, paired.Goal{Max: paired.Median(plain) + 10})
	row.Wanted = "≤ 10 ms more"
	b.Row(row)
	b.Row(paired.NewRow("computing and copying in it", "s", "without", speeds, plainSpeeds, paired.Goal{MaxRatio: 1.03}))
	return nil
}

// startProcess starts a process that executes itself again, isolated or not. took is its whole
// duration in milliseconds, speed the duration of its work in seconds.
func (b *bench) startProcess(ctx context.Context, groups *cgroup.Tree, isolate bool, rounds string) (took, speed float64, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	config := "plain"
	if isolate {
		if config, err = b.sandboxConfig(cmd); err != nil {
			return 0, 0, err
		}
	}
	cmd.Env = []string{enterVariable + "=" + config, "OUTBOARD_BENCH_ROUNDS=" + rounds}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	var group *cgroup.Group
	if isolate {
		if group, err = groups.Make("session", cgroup.Limits{Memory: 1 << 30, Tasks: 1024, Weight: 100}); err != nil {
			return 0, 0, err
		}
	}
	if err := startIn(cmd, group); err != nil {
		return 0, 0, errors.Join(err, group.Remove())
	}
	err = errors.Join(in.Close(), cmd.Wait(), group.Remove())
	took = float64(time.Since(began).Microseconds()) / 1000
	if rounds != "0" && err == nil {
		_, err = fmt.Sscan(out.String(), &speed)
	}
	return took, speed, err
}

// startIn starts cmd in a control group, as a node starts a worker.
func startIn(cmd *exec.Cmd, group *cgroup.Group) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end, err := group.Begin(cmd.SysProcAttr)
	if err != nil {
		return err
	}
	return errors.Join(cmd.Start(), end())
}

// sandboxConfig returns a configuration as that of a worker's sandbox, and makes cmd start in its
// namespaces.
func (b *bench) sandboxConfig(cmd *exec.Cmd) (string, error) {
	n := sandbox.DetectNamespaces()
	n.Apply(cmd.SysProcAttr)
	c := sandbox.Config{
		Namespaces: n.List(), Scratch: filepath.Join(b.Dir, "scratch"), TmpSize: 1 << 20, ShmSize: 1 << 20,
		Layers: []sandbox.Layer{{Source: filepath.Join(b.Dir, "cache"), Target: "/cache", Size: 1 << 20}},
	}
	for _, dir := range []string{c.Scratch, c.Layers[0].Source} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	if unix.Geteuid() == 0 && !n.User() {
		c.UID, c.GID = 0x70000001, 0x70000001
	}
	text, err := json.Marshal(c)
	return string(text), err
}
