package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// rollout replaces a model repeatedly while clients use it.
func (b *bench) rollout(ctx context.Context) error {
	p, err := b.start(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	var files [2]string
	for i := range files {
		if files[i], err = b.mlpFile(uint64(i + 1)); err != nil {
			return err
		}
	}
	config := oneThread("queue: {size: 1024}")
	if err := p.push(ctx, "mlp", files[0], config); err != nil {
		return err
	}
	q, err := prepare(0, mlpInput(1))
	if err != nil {
		return err
	}
	request := func(ctx context.Context) error { return q.at(ctx, p.urls[0], "mlp") }
	const clients = 8
	steady := closedLoop(ctx, clients, b.Turn(5*time.Second, time.Second), request)
	count := b.Rounds(100, 5)
	var early float64
	var pushed atomic.Int64
	var failure error
	var pushing sync.WaitGroup
	changing, stop := context.WithCancel(ctx)
	defer stop()
	pushing.Go(func() {
		defer stop()
		for i := range count {
			if failure = p.push(ctx, "mlp", files[(i+1)%2], config); failure != nil {
				return
			}
			if pushed.Add(1) == int64(max(count/5, 1)) {
				early = residentMemory(p.Node(nodeNames[0]).PID())
			}
		}
	})
	during := closedLoop(changing, clients, time.Hour, func(context.Context) error { return request(ctx) })
	pushing.Wait()
	if failure != nil {
		return failure
	}
	b.None(fmt.Sprintf("%d roll-outs under full load: failed of %d requests", count, during.done), "requests", float64(len(during.failed)))
	b.Row(paired.NewRow("roll-outs under full load: p99 of a request", "ms", "p99 without roll-outs",
		[]float64{percentile99(during.times)}, []float64{percentile99(steady.times)}, paired.Goal{MaxRatio: 1.5}).
		Because("a version that is loaded and warmed computes on the same cores, and `outboard models push` runs there too"))
	late := residentMemory(p.Node(nodeNames[0]).PID())
	b.Row(paired.NewRow(fmt.Sprintf("memory of the node after %d reloads", count), "MiB", fmt.Sprintf("after %d", max(count/5, 1)),
		[]float64{late}, []float64{early}, paired.Goal{MaxRatio: 1.15}))
	return nil
}
