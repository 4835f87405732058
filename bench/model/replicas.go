package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// replicas sends prompts that share prefixes to four replicas: placed by the pool, and round robin.
func (b *bench) replicas(ctx context.Context) error {
	file, err := b.mediumText()
	if err != nil {
		return err
	}
	p, err := b.start(ctx, 4, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	// Each replica's cells have room for the prefixes of three of the twelve groups.
	const (
		config = "context: 512\nsequences: 3\nthreads: 1\nidle: -1s\n"
		groups = 12
		prefix = 256
	)
	if err := p.push(ctx, "placed", file, config+"replicas: 4\n"); err != nil {
		return err
	}
	for _, name := range p.names {
		if err := p.push(ctx, "on-"+name, file, config+fmt.Sprintf("nodes: [%s]\n", name)); err != nil {
			return err
		}
	}
	turns := b.Rounds(20, 3)
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // the order of prompts
	var placed, round []float64
	var cached [2]int
	sent := 0
	for turn := range turns + 1 {
		for i, group := range random.Perm(groups) {
			seed := uint64(1000 + turn*groups + i)
			text := append(prompt(uint64(group), prefix), prompt(seed, 16)...)
			a, err := complete(ctx, p.urls[i%4], newCompletion("placed", text, 1), nil)
			if err != nil {
				return err
			}
			other := append(prompt(uint64(100+group), prefix), prompt(seed, 16)...)
			node := sent % 4
			sent++
			c, err := complete(ctx, p.urls[node], newCompletion("on-"+p.names[node], other, 1), nil)
			if err != nil {
				return err
			}
			if turn == 0 {
				continue // nothing is cached the first time
			}
			placed, round = append(placed, milliseconds(a.first)), append(round, milliseconds(c.first))
			cached[0], cached[1] = cached[0]+a.cached, cached[1]+c.cached
		}
	}
	b.Row(paired.NewRow("four replicas, 12 shared prefixes: mean time to the first token", "ms", "round robin", []float64{mean(placed)}, []float64{mean(round)}, paired.Goal{MaxRatio: 0.5}))
	n := float64(len(placed))
	b.Row(paired.NewRow("four replicas, 12 shared prefixes of 256 tokens: cached tokens of a prompt", "tokens", "round robin", []float64{float64(cached[0]) / n}, []float64{float64(cached[1]) / n}, paired.Goal{}))
	return nil
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// waitFor polls until check is true, for at most a minute.
func waitFor(ctx context.Context, what string, check func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !check() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
