package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/bench/paired"
)

// mixedLoad is a load of small calls during a transfer on the same connection. The small calls
// are an open loop: a closed loop would send the fewest calls when the transfer delays them
// most (coordinated omission).
type mixedLoad struct {
	Size    int
	Rate    float64
	Bytes   int // bytes of the transfer
	Chunk   int // bytes of each of its messages
	Seconds float64
}

type mixedResult struct {
	// Alone and With are the small calls without and with the transfer.
	Alone, With result
	Transfer    float64 // seconds
}

func (a *actor) mixed(ctx context.Context, l mixedLoad) (mixedResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := dial(a.spec.Stack, a.spec.target(""), a.spec.Identity)
	if err != nil {
		return mixedResult{}, err
	}
	defer c.Close()
	small := echoCaller(ctx, c, l.Size)
	for range warmCalls {
		if err := small(); err != nil {
			return mixedResult{}, err
		}
	}
	var r mixedResult
	r.Alone = summary(openLoop(small, l.Rate, after(l.Seconds)))
	var over atomic.Bool
	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		err := sendTransfer(ctx, testgrpc.NewTestServiceClient(c), l)
		r.Transfer = time.Since(began).Seconds()
		over.Store(true)
		sent <- err
	}()
	r.With = summary(openLoop(small, l.Rate, over.Load))
	return r, <-sent
}

// sendTransfer sends l.Bytes, and checks that the server has received them.
func sendTransfer(ctx context.Context, stub testgrpc.TestServiceClient, l mixedLoad) error {
	s, err := stub.StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	in := &testgrpc.StreamingInputCallRequest{Payload: payload(l.Chunk)}
	for range l.Bytes / l.Chunk {
		if err := s.Send(in); err != nil {
			_, err = s.CloseAndRecv() // which returns the reason
			return err
		}
	}
	out, err := s.CloseAndRecv()
	if err == nil && int(out.GetAggregatedPayloadSize()) != l.Bytes/l.Chunk*l.Chunk {
		err = fmt.Errorf("%d bytes came of %d", out.GetAggregatedPayloadSize(), l.Bytes)
	}
	return err
}

// transfer measures small calls beside a transfer of 1 GiB in large messages.
func (b *bench) transfer(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		topologies, err := f.tlsTopologies(ctx)
		if err != nil {
			return err
		}
		local, err := f.echoTopology(ctx, direct, "transfer", stackFabric, "")
		if err != nil {
			return err
		}
		topologies = append(topologies, local)
		l := mixedLoad{Size: 64, Rate: 500, Bytes: 1 << 30, Chunk: 16 << 20, Seconds: 2}
		if b.Quick {
			l.Bytes = 256 << 20
		}
		all, err := mixedTurns(ctx, b.Rounds(3, 2), l, topologies)
		if err == nil {
			b.mixedRows(all, topologies)
		}
		return err
	})
}

func mixedTurns(ctx context.Context, rounds int, l mixedLoad, topologies []*topology) (map[string][]mixedResult, error) {
	all := map[string][]mixedResult{}
	for range rounds {
		for _, w := range topologies {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			var r mixedResult
			err := w.client.do("mixed", l, &r)
			if n := r.Alone.Lost + r.With.Lost; err == nil && n > 0 {
				err = fmt.Errorf("%d calls lost: %s", n, r.Alone.Cause+r.With.Cause)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			all[w.name] = append(all[w.name], r)
		}
	}
	return all, nil
}

func (b *bench) mixedRows(all map[string][]mixedResult, topologies []*topology) {
	of := func(name string, number func(mixedResult) float64) []float64 {
		var values []float64
		for _, r := range all[name] {
			values = append(values, number(r))
		}
		return values
	}
	with := func(r mixedResult) float64 { return r.With.P99 }
	alone := func(r mixedResult) float64 { return r.Alone.P99 }
	middle := func(r mixedResult) float64 { return r.With.P50 }
	took := func(r mixedResult) float64 { return r.Transfer }
	const title = "64 B beside a transfer of 1 GiB: "
	for _, w := range topologies {
		b.row(paired.NewRow(title+"p99, "+w.name, "us", "without the transfer", of(w.name, with), of(w.name, alone), paired.Goal{}))
	}
	b.row(paired.NewRow(title+"p99, "+secure, "us", securePlain, of(secure, with), of(securePlain, with), paired.Goal{MaxRatio: 1}))
	b.row(paired.NewRow(title+"p50, "+secure, "us", securePlain, of(secure, middle), of(securePlain, middle), paired.Goal{MaxRatio: 1}))
	b.row(paired.NewRow("the transfer itself, "+secure, "s", securePlain, of(secure, took), of(securePlain, took), paired.Goal{}))
}
