package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// oneThread returns the configuration of a model on the first node with the threads of the direct
// calls.
func oneThread(more ...string) string {
	return lines(append([]string{"nodes: [harbour]", "threads: 1", "idle: -1s"}, more...)...)
}

// inTurns calls each of ways in turn, rounds times after a first time that does not count, and
// returns their times in milliseconds.
func inTurns(rounds int, ways ...func() error) ([][]float64, error) {
	times := make([][]float64, len(ways))
	for round := range rounds + 1 {
		for i, way := range ways {
			took, err := timed(way)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}

// encoder measures the time that a request adds to a call of about 30 ms.
func (b *bench) encoder(ctx context.Context) error {
	file, err := b.encoderFile()
	if err != nil {
		return err
	}
	own, err := direct(ctx, "onnx", file, engine.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer own.Close()
	p, err := b.start(ctx, 2, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.push(ctx, "encoder", file, oneThread()); err != nil {
		return err
	}
	input := tokensInput(128)
	q, err := prepare(0, input)
	if err != nil {
		return err
	}
	ways := []func() error{
		func() error { return infer(ctx, own, input) },
		func() error { return q.at(ctx, p.urls[0], "encoder") },
		func() error { return q.at(ctx, p.urls[1], "encoder") },
	}
	caller, grpcErr := dialOIP(ctx, p.grpcs[0], "encoder", input)
	if grpcErr == nil {
		defer caller.Close()
		ways = append(ways, func() error { return caller.infer(ctx) })
	} else {
		b.note("The rows for gRPC are missing: " + grpcErr.Error())
	}
	times, err := inTurns(b.Rounds(300, 40), ways...)
	if err != nil {
		return err
	}
	b.Row(paired.NewRow("encoder, a request over REST", "ms", "direct call", times[1], times[0], paired.Goal{MaxRatio: 1.05}))
	if grpcErr == nil {
		b.Row(paired.NewRow("encoder, a request over gRPC", "ms", "direct call", times[3], times[0], paired.Goal{MaxRatio: 1.03}))
	}
	b.Row(paired.NewRow("encoder on another node: the direct call and what the fabric adds to REST", "ms", "direct call",
		added(times[0], times[2], times[1]), times[0], paired.Goal{MaxRatio: 1.01}))
	return b.encoderTime(p, ways[0], ways[1])
}

// encoderTime compares the processor time of the node with that of direct calls, which other
// programs on the machine disturb less than wall time.
func (b *bench) encoderTime(p *pool, alone, served func() error) error {
	const calls = 25
	var times, own []float64
	for range b.Rounds(9, 3) {
		before := ownTime()
		if _, err := inTurns(calls-1, alone); err != nil {
			return err
		}
		own = append(own, milliseconds(ownTime()-before)/calls)
		node := p.Node(nodeNames[0]).PID()
		before = processorTime(node)
		if _, err := inTurns(calls-1, served); err != nil {
			return err
		}
		times = append(times, milliseconds(processorTime(node)-before)/calls)
	}
	b.Row(paired.NewRow("encoder, a request over REST: processor time of node and engine", "ms", "direct call", times, own, paired.Goal{MaxRatio: 1.05}))
	return nil
}

// added returns base plus the difference of the medians of two measurements that took turns.
func added(base, more, less []float64) []float64 {
	list := make([]float64, len(base))
	difference := paired.Median(more) - paired.Median(less)
	for i := range base {
		list[i] = base[i] + difference
	}
	return list
}

// infer calls a model of this process.
func infer(ctx context.Context, m engine.Model, inputs ...model.Tensor) error {
	_, err := m.(engine.TensorModel).Infer(ctx, inputs, nil) //nolint:errcheck // a model for tensors
	return err
}

// batchRows is the number of rows of the batches that are compared with direct calls.
const batchRows = 32

// mlp measures the benefit of batches for a small network with 64 clients.
func (b *bench) mlp(ctx context.Context) error {
	file, err := b.mlpFile(1)
	if err != nil {
		return err
	}
	own, err := direct(ctx, "onnx", file, engine.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer own.Close()
	p, err := b.start(ctx, 2, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	for name, batching := range map[string]string{"batched": "batching: {max: 64}", "single": "batching: {max: 1}"} {
		if err := p.push(ctx, name, file, oneThread(batching, "queue: {size: 4096}")); err != nil {
			return err
		}
	}
	protocol, request, stop := mlpClients(ctx, p, 1)
	defer stop()
	_, requestBatch, stopBatch := mlpClients(ctx, p, batchRows)
	defer stopBatch()
	const clients = 64
	turn := b.Turn(1200*time.Millisecond, 400*time.Millisecond)
	rates := map[string][]float64{}
	for round := range b.Rounds(7, 3) + 1 {
		for _, way := range []struct {
			name  string
			model string
			node  int
		}{{"single", "single", 0}, {"batched", "batched", 0}, {"elsewhere", "batched", 1}} {
			l := closedLoop(ctx, clients, turn, func(ctx context.Context) error { return request(ctx, way.node, way.model) })
			if err := errors.Join(l.failed...); err != nil {
				return err
			}
			if round > 0 {
				rates[way.name] = append(rates[way.name], l.perSec)
			}
		}
		// A few calls are in progress at a time, so that none waits for a wake-up between the
		// nodes.
		l := closedLoop(ctx, 4, turn, func(ctx context.Context) error { return requestBatch(ctx, 1, "batched") })
		if err := errors.Join(l.failed...); err != nil {
			return err
		}
		batch := mlpInput(batchRows)
		alone := closedLoop(ctx, 1, turn/2, func(ctx context.Context) error { return infer(ctx, own, batch) })
		if round > 0 {
			rates["fabric"], rates["direct"] = append(rates["fabric"], batchRows*l.perSec), append(rates["direct"], batchRows*alone.perSec)
		}
	}
	b.Row(paired.NewRow(fmt.Sprintf("MLP, %d clients over %s: batched", clients, protocol), "requests/s", "one at a time", rates["batched"], rates["single"], paired.Goal{MinRatio: 5}).
		Because("clients, the protocol and the node share the cores with the engine: what a request costs there bounds the rate of both ways"))
	b.Row(paired.NewRow(fmt.Sprintf("MLP, batches of %d over %s and the fabric", batchRows, protocol), "rows/s", "direct calls", rates["fabric"], rates["direct"], paired.Goal{MinRatio: 0.5}).
		Because("clients, two nodes and the engine share the cores; the direct calls have a core to themselves"))
	b.Row(paired.NewRow(fmt.Sprintf("MLP, %d clients with single rows over %s and the fabric", clients, protocol), "requests/s", "on the own node", rates["elsewhere"], rates["batched"], paired.Goal{}))
	return nil
}

// mlpClients returns a function by which a client requests the MLP: over gRPC if the nodes serve
// it. Each request has a number of rows.
func mlpClients(ctx context.Context, p *pool, rows int) (protocol string, request func(context.Context, int, string) error, stop func()) {
	input := mlpInput(rows)
	callers := map[string]*oipCaller{}
	stop = func() {
		for _, c := range callers {
			_ = c.Close()
		}
	}
	for node, addr := range p.grpcs {
		for _, name := range []string{"single", "batched"} {
			c, err := dialOIP(ctx, addr, name, input)
			if err != nil {
				q, _ := prepare(0, input)
				return "REST", func(ctx context.Context, node int, name string) error { return q.at(ctx, p.urls[node], name) }, stop
			}
			callers[fmt.Sprint(node, name)] = c
		}
	}
	return "gRPC", func(ctx context.Context, node int, name string) error {
		return callers[fmt.Sprint(node, name)].infer(ctx)
	}, stop
}

// link measures an engine on another node through an emulated link.
func (b *bench) link(ctx context.Context) error {
	file, err := b.encoderFile()
	if err != nil {
		return err
	}
	link := netem.Link{RTT: 100 * time.Microsecond, BitsPerSecond: 1e9}
	p, err := b.start(ctx, 2, &link)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.push(ctx, "encoder", file, oneThread()); err != nil {
		return err
	}
	input := tokensInput(128)
	q, err := prepare(0, input)
	if err != nil {
		return err
	}
	times, err := inTurns(b.Rounds(200, 30),
		func() error { return q.at(ctx, p.urls[0], "encoder") },
		func() error { return q.at(ctx, p.urls[1], "encoder") })
	if err != nil {
		return err
	}
	const output = 128 * 384 * 4
	transfer := milliseconds(link.RTT) + 1000*float64(len(input.Data)+output)*8/link.BitsPerSecond
	for i := range times[0] {
		times[0][i] += transfer
	}
	b.Row(paired.NewRow("encoder on another node through 0.1 ms and 1 Gbit/s", "ms", fmt.Sprintf("on the own node, and %.2f ms of transfer", transfer),
		times[1], times[0], paired.Goal{MaxRatio: 1.03}))
	return nil
}
