package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/bench/paired"
)

// beside is a load of small calls during a transfer on the same connection. The small calls
// are an open loop: a closed loop would send the fewest calls when the transfer delays them
// most (coordinated omission).
type beside struct {
	Size    int
	Rate    float64
	Bytes   int // of the transfer
	Chunk   int // of its messages
	Seconds float64
}

type besideResult struct {
	// Alone and With are the small calls without and with the transfer.
	Alone, With result
	Transfer    float64 // seconds
}

func (a *actor) beside(ctx context.Context, l beside) (besideResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := dial(a.spec.Stack, a.spec.target(""), a.spec.Identity)
	if err != nil {
		return besideResult{}, err
	}
	defer c.Close()
	small := echoCaller(ctx, c, l.Size)
	for range warm {
		if err := small(); err != nil {
			return besideResult{}, err
		}
	}
	var r besideResult
	r.Alone = summary(openLoop(small, l.Rate, after(l.Seconds)))
	var over atomic.Bool
	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		err := pour(ctx, testgrpc.NewTestServiceClient(c), l)
		r.Transfer = time.Since(began).Seconds()
		over.Store(true)
		sent <- err
	}()
	r.With = summary(openLoop(small, l.Rate, over.Load))
	return r, <-sent
}

// pour sends l.Bytes, and wants to hear that they came.
func pour(ctx context.Context, stub testgrpc.TestServiceClient, l beside) error {
	s, err := stub.StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	in := &testgrpc.StreamingInputCallRequest{Payload: payload(l.Chunk)}
	for range l.Bytes / l.Chunk {
		if err := s.Send(in); err != nil {
			_, err = s.CloseAndRecv() // which says why
			return err
		}
	}
	out, err := s.CloseAndRecv()
	if err == nil && int(out.GetAggregatedPayloadSize()) != l.Bytes/l.Chunk*l.Chunk {
		err = fmt.Errorf("%d bytes came of %d", out.GetAggregatedPayloadSize(), l.Bytes)
	}
	return err
}

// transfer is a transfer of 1 GiB, in messages that are large, beside small calls.
func (b *bench) transfer(ctx context.Context) error {
	return b.with(func(f *plant) error {
		ways, err := f.tlsWays(ctx)
		if err != nil {
			return err
		}
		local, err := f.echoWay(ctx, direct, "transfer", stackFabric, "")
		if err != nil {
			return err
		}
		ways = append(ways, local)
		l := beside{Size: 64, Rate: 500, Bytes: 1 << 30, Chunk: 16 << 20, Seconds: 2}
		if b.Quick {
			l.Bytes = 256 << 20
		}
		all, err := besides(ctx, b.Rounds(3, 2), l, ways)
		if err == nil {
			b.besideRows(all, ways)
		}
		return err
	})
}

func besides(ctx context.Context, rounds int, l beside, ways []*way) (map[string][]besideResult, error) {
	all := map[string][]besideResult{}
	for range rounds {
		for _, w := range ways {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			var r besideResult
			err := w.client.do("beside", l, &r)
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

func (b *bench) besideRows(all map[string][]besideResult, ways []*way) {
	of := func(way string, number func(besideResult) float64) []float64 {
		var values []float64
		for _, r := range all[way] {
			values = append(values, number(r))
		}
		return values
	}
	with := func(r besideResult) float64 { return r.With.P99 }
	alone := func(r besideResult) float64 { return r.Alone.P99 }
	middle := func(r besideResult) float64 { return r.With.P50 }
	took := func(r besideResult) float64 { return r.Transfer }
	const title = "64 B beside a transfer of 1 GiB: "
	for _, w := range ways {
		b.row(paired.NewRow(title+"p99, "+w.name, "us", "without the transfer", of(w.name, with), of(w.name, alone), paired.Goal{}))
	}
	b.row(paired.NewRow(title+"p99, "+secure, "us", securePlain, of(secure, with), of(securePlain, with), paired.Goal{MaxRatio: 1}))
	b.row(paired.NewRow(title+"p50, "+secure, "us", securePlain, of(secure, middle), of(securePlain, middle), paired.Goal{MaxRatio: 1}))
	b.row(paired.NewRow("the transfer itself, "+secure, "s", securePlain, of(secure, took), of(securePlain, took), paired.Goal{}))
}
