package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// attacker is an attacker beside a session.
type attacker struct{ what, mode, node string }

func (a attacker) name() string { return "session beside " + a.what }

// attackers use as much as they can of a resource: modes of testdata/load.c, and the node on which
// each runs. harbour has the device. The first is no attacker: it does the same as the victim, and
// shows the effect of a fair half of the device.
var attackers = []attacker{
	{"nothing (an equal session)", "peer", "harbour"},
	{"the device", "device", "harbour"},
	{"its ring", "ring", "harbour"},
	{"its link", "link", "dinghy"},
	{"memory bandwidth", "memory", "harbour"},
	{"printing", "log", "harbour"},
}

// victims measures a session beside attackers that have a lease of the same weight. Alone it has
// the whole device: with a fair half of it every operation takes twice as long.
func (b *bench) victims(ctx context.Context) (err error) {
	chosen, err := chosenOf(b.beside, attackers, attacker.name)
	if err != nil || len(chosen) == 0 {
		return err
	}
	load := filepath.Join(b.Dir, "load")
	if out, err := exec.CommandContext(ctx, "cc", "-O2", "-o", load, "bench/attack/testdata/load.c", "-lOpenCL").CombinedOutput(); err != nil {
		return fmt.Errorf("compile load.c: %w: %s", err, out)
	}
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "nodes"), Nodes: []rig.Spec{{Name: "harbour"}, {Name: "dinghy", Devices: "none"}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, a := range chosen {
		var beside, alone [2][]float64 // p50 and p99
		for range b.Rounds(5, 2) {
			quiet, err := b.latencies(ctx, r, load)
			if err != nil {
				return err
			}
			stop, err := startAttacker(ctx, r.Node(a.node), load, a.mode)
			if err != nil {
				return err
			}
			loud, err := b.latencies(ctx, r, load)
			stop()
			if err != nil {
				return err
			}
			for i, q := range []float64{0.5, 0.99} {
				beside[i], alone[i] = append(beside[i], quantile(loud, q)), append(alone[i], quantile(quiet, q))
			}
		}
		for i, name := range []string{"p50", "p99"} {
			b.Row(paired.NewRow("launch of 1 ms and wait, "+name+", beside an attack on "+a.what, "us", "alone", beside[i], alone[i], paired.Goal{MaxRatio: 2.2}))
		}
	}
	return nil
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// latencies runs the victim for a while and returns its latencies in microseconds.
func (b *bench) latencies(ctx context.Context, r *rig.Rig, load string) ([]float64, error) {
	seconds := b.Turn(8*time.Second, 3*time.Second).Seconds()
	cmd := r.Node("harbour").Command(ctx, "run", "--memory", "1GiB", "--", load, "victim", fmt.Sprint(seconds))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var values []float64
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if v, err := strconv.ParseFloat(lines.Text(), 64); err == nil {
			values = append(values, v)
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the victim: %w", err)
	}
	return values, nil
}

// startAttacker starts an attacker and waits until it has begun.
func startAttacker(ctx context.Context, node *rig.Node, load, mode string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := node.Command(ctx, "run", "--memory", "1GiB", "--", load, mode)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	pipe := cmd.StdoutPipe
	if mode == "log" {
		pipe = cmd.StderrPipe // the output of kernels goes to standard output
	}
	out, err := pipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("the attacker %q ended", mode)
}
