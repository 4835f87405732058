package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// offeredRate is the number of calls per second: 45 % of the capacity of the back ends of speed 1, 1, 2
// and 4, and 90 % of the capacity of the slow back ends if all get the same share.
const offeredRate = 450

func speeds() []float64 { return []float64{1, 1, 2, 4} }

const (
	robin    = "round robin"
	requests = "least requests with reports"
	weighted = "weighted by reports"
)

// balances returns the methods of balancing, by name. A zero time means the default, so a negative
// time means none.
func balances() map[string]balance.Config {
	reports := balance.Reports{Enabled: true, Blackout: -1, Period: 500 * time.Millisecond}
	return map[string]balance.Config{
		robin:    {Method: balance.RoundRobin},
		requests: {Method: balance.LeastRequests, Reports: reports},
		weighted: {Method: balance.Weighted, Reports: reports},
	}
}

// balanced has the results of one balancing algorithm, a number for each turn.
type balanced struct{ p99, p50, uneven []float64 }

// balance measures calls to back ends of unequal speed; the calls begin at random times.
func (b *bench) balance(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		w, err := f.backends(ctx)
		if err != nil {
			return err
		}
		all := map[string]*balanced{}
		for range b.Rounds(2, 1) {
			for _, name := range []string{robin, requests, weighted} {
				if all[name] == nil {
					all[name] = new(balanced)
				}
				if err := b.balanceTurn(ctx, w, name, all[name]); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		b.balanceRows(all)
		return nil
	})
}

func (f *processGroup) backends(ctx context.Context) (*topology, error) {
	w, targets := &topology{name: "balance"}, []string{}
	for i, speed := range speeds() {
		name := fmt.Sprintf("backend-%d", i)
		targets = append(targets, f.bench.socket(name))
		s := spec{Role: roleServer, Name: name, Stack: stackFabric, App: "backend", Listen: targets[i], Speed: speed}
		if err := w.add(ctx, f, s); err != nil {
			return nil, err
		}
	}
	middle := spec{
		Role: roleManaged, Name: "balance-middle", Listen: f.bench.socket("balance-middle"), Policies: threePolicies,
		Targets: map[string][]string{"grpc.testing.TestService": targets},
	}
	if err := w.add(ctx, f, middle); err != nil {
		return nil, err
	}
	err := w.addClient(ctx, f, spec{Role: roleClient, Name: "balance-client", Stack: stackFabric, Targets: map[string][]string{"": {middle.Listen}}})
	return w, err
}

// balanceTurn balances by one algorithm until the weights are stable, then measures for long enough
// to see how the queues of back ends that are busy nine tenths of the time grow.
func (b *bench) balanceTurn(ctx context.Context, w *topology, name string, into *balanced) error {
	var done bool
	if err := w.others[len(speeds())].do("balance", name, &done); err != nil {
		return err
	}
	warmUp := load{Call: "work", Rate: offeredRate, Seconds: b.Turn(4*time.Second, 3*time.Second).Seconds()}
	if err := w.client.do("load", warmUp, new(result)); err != nil {
		return err
	}
	observation := warmUp
	observation.Seconds = b.Turn(20*time.Second, 8*time.Second).Seconds()
	watched, stop := make(chan utilizationSamples, 1), make(chan struct{})
	go func() { watched <- watch(ctx, w.others[:len(speeds())], stop) }()
	var r result
	err := w.client.do("load", observation, &r)
	close(stop)
	seen := <-watched
	switch {
	case err != nil:
		return err
	case seen.err != nil:
		return seen.err
	case r.Lost+r.Wrong > 0:
		return fmt.Errorf("%d calls lost: %s", r.Lost, r.Cause)
	}
	into.p99, into.p50 = append(into.p99, r.P99/1e3), append(into.p50, r.P50/1e3)
	into.uneven = append(into.uneven, unevenness(seen.utilizations))
	return nil
}

// utilizationSamples has the utilization of each back end in each window.
type utilizationSamples struct {
	utilizations []float64
	err          error
}

// windowOfUtilization is the time over which utilization is averaged: some hundred calls of each
// back end.
const windowOfUtilization = 4 * time.Second

func watch(ctx context.Context, backends []*process, stop <-chan struct{}) utilizationSamples {
	var w utilizationSamples
	last, at := make([]float64, len(backends)), time.Time{}
	ticks := time.NewTicker(windowOfUtilization)
	defer ticks.Stop()
	for {
		now := time.Now()
		for i, p := range backends {
			var busy float64
			if w.err = p.do("busy", nil, &busy); w.err != nil {
				return w
			}
			if !at.IsZero() {
				w.utilizations = append(w.utilizations, (busy-last[i])/now.Sub(at).Seconds())
			}
			last[i] = busy
		}
		at = now
		select {
		case <-ticks.C:
		case <-stop:
			return w
		case <-ctx.Done():
			return w
		}
	}
}

// unevenness returns the 99th percentile divided by the mean.
func unevenness(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[int(0.99*float64(len(s)-1)+0.5)] / (sum(s) / float64(len(s)))
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

func (b *bench) balanceRows(all map[string]*balanced) {
	turns := all[robin]
	for _, name := range []string{requests, weighted} {
		title := "back ends of speed 1, 1, 2, 4, " + name + ": "
		late, uneven := paired.Goal{}, paired.Goal{}
		if name == weighted {
			late.MaxRatio, uneven.Max = 0.5, 1.2
		}
		ours := all[name]
		b.row(paired.NewRow(title+"p99", "ms", robin, ours.p99, turns.p99, late))
		b.row(paired.NewRow(title+"p50", "ms", robin, ours.p50, turns.p50, paired.Goal{}))
		b.row(paired.NewRow(title+"utilisation, p99 / mean", "", robin, ours.uneven, turns.uneven, uneven))
	}
}
