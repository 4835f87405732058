package main

import (
	"context"
	"errors"
	"os/exec"
	"sync"

	"github.com/outboard-run/outboard/bench/paired"
)

// loops is the number of busy loops beside which the section measures.
const loops = 2

// busyGoals are small synchronous calls. Their cost beside busy loops is mostly the time that the
// scheduler takes to run each thread that a call wakes.
var busyGoals = []goal{
	{shared, "read_small", "smallest blocking read", "us", paired.Goal{}, ""},
	{shared, "launch_finish", "launch and clFinish", "us", paired.Goal{MaxRatio: 2.5}, wakeUpCost},
	{shared, "launch_read", "launch and a read of 4 KiB", "us", paired.Goal{MaxRatio: 2.5}, wakeUpCost},
	{network, "launch_finish", "launch and clFinish", "us", paired.Goal{MaxRatio: 2.5}, wakeUpCost},
	{network, "launch_read", "launch and a read of 4 KiB", "us", paired.Goal{MaxRatio: 2.5}, wakeUpCost},
	{shared, "image_map", "map, write and unmap of a tiny image", "us", paired.Goal{}, ""},
}

const wakeUpCost = "A call wakes the worker, the driver's thread and the program again, where the local driver wakes its own thread at most."

// busy measures small synchronous calls beside busy loops.
func (b *bench) busy(ctx context.Context) error {
	ways := []string{local, shared, network}
	if err := b.warmUp(ctx, ways); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range loops {
		loop := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			return err
		}
		running.Go(func() { _ = loop.Wait() })
	}
	values := samples{}
	for range b.Rounds(5, 2) {
		for _, way := range ways {
			args := []string{"-reads", "500", "-alternate", "0", "-launches", "500", "-small", "500", "-streams", "0", "-hundreds", "0", "-transfers", "0"}
			if err := b.measure(ctx, b.launcher(way), values, way, args...); err != nil {
				return errors.Join(err, ctx.Err())
			}
		}
	}
	for _, g := range busyGoals {
		b.Row(paired.NewRow(g.title+" beside two busy loops, "+g.transport, g.unit, local, values[g.transport][g.name], values[local][g.name], g.goal).Because(g.reason))
	}
	return nil
}
