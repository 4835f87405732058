package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// runner runs programs, and repeats disturbed runs.
type runner struct {
	paired.Run
	rig *rig.Rig
	// observe calls a function and returns how disturbed it was; late returns the lateness of the
	// emulation so far.
	observe func(what string, run func() error) (paired.Timing, error)
	late    func() lateness
	keep    archive
	// recordings counts traces: their files have different names.
	recordings int
	// repeated is how long repetitions of disturbed runs have taken, repeatFor how long they may take.
	repeated, repeatFor time.Duration
}

// over returns a launcher of programs on the device, over the current link of its node.
func (b *runner) over(flags ...string) suite.Launcher {
	return b.start(append([]string{"--device", "node=" + deviceNode}, flags...)...)
}

// start returns a launcher of programs with `outboard run`.
func (b *runner) start(flags ...string) suite.Launcher {
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		run := append(append([]string{"run"}, flags...), "--", name)
		return b.rig.Node(programNode).Command(ctx, append(run, args...)...)
	}
}

// runOver runs a program over the link of a result.
func (b *runner) runOver(ctx context.Context, r *result) error {
	var wall time.Duration
	disturbed, err := b.measure(fmt.Sprintf("%s over %s", r.program.Name, r.link), &r.late, func() error {
		of, err := b.runOnce(ctx, r.program, b.over())
		wall = of.Wall
		r.program.used.runs++
		r.program.used.client += of.CPU
		return err
	})
	r.runs = append(r.runs, run{wall.Seconds(), disturbed})
	return err
}

// reference runs a program locally: whether the processors are as fast as they were during its
// recording.
func (b *runner) reference(ctx context.Context, p *program) error {
	var none lateness
	var wall time.Duration
	disturbed, err := b.measure(p.Name+", local", &none, func() error {
		of, err := b.runOnce(ctx, p, suite.Local)
		wall = of.Wall
		return err
	})
	p.references = append(p.references, run{wall.Seconds(), disturbed})
	return err
}

// runOnce runs a program; a failure exit status of the program is no error.
func (b *runner) runOnce(ctx context.Context, p *program, launcher suite.Launcher) (suite.Result, error) {
	r := p.Run(ctx, launcher, p.home)
	if r.Err != nil && r.ExitStatus() < 0 {
		return r, fmt.Errorf("%w: %s", r.Err, r.Stderr)
	}
	return r, nil
}

// several returns the middle one of a few runs, and adds the lateness of the emulation during all of them.
// A long run averages out short disturbances: there is no second one.
func (b *runner) several(ctx context.Context, p *program, launcher suite.Launcher, runs int, late *lateness) (run, error) {
	var all result
	for range b.Rounds(runs, 1) {
		var wall time.Duration
		disturbed, err := b.measure(p.Name, late, func() error {
			r, err := b.runOnce(ctx, p, launcher)
			wall = r.Wall
			return err
		})
		if err != nil {
			return run{}, err
		}
		all.runs = append(all.runs, run{wall.Seconds(), disturbed})
		if wall > longRun {
			break
		}
	}
	return all.middle(), nil
}

// longRun is the length from which a run is not repeated.
const longRun = 1500 * time.Millisecond
