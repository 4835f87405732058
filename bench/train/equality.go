package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/outboard-run/outboard/bench/paired"
)

// A trained is the output of a rank of equality.py.
type trained struct {
	Rank   int      `json:"rank"`
	Digest string   `json:"digest"`
	Losses []string `json:"losses"`
	// Worst is the greatest difference of a parameter from that of one process.
	Worst float64 `json:"worst"`
}

// equality compares trained parameters with those of gloo, and with those of one process.
func (b *bench) equality(ctx context.Context) error {
	const steps = 100
	want, err := b.trainNetwork(ctx, "gloo", 2, steps, 1)
	if err != nil {
		return err
	}
	got, err := b.trainNetwork(ctx, "outboard", 2, steps, 1)
	if err != nil {
		return err
	}
	b.None("DDP on two ranks, 100 steps: losses and parameters that differ from gloo's in a bit", "values", float64(differences(got, want)))
	for _, c := range []struct {
		name               string
		ranks, accumulated int
	}{
		{"DDP on four ranks, 100 steps: greatest difference of a parameter from one process", 4, 1},
		{"DDP on two ranks, each step accumulated from three parts: the same", 2, 3},
	} {
		got, err := b.trainNetwork(ctx, "outboard", c.ranks, steps, c.accumulated)
		if err != nil {
			return err
		}
		var worst []float64
		for _, t := range got {
			worst = append(worst, t.Worst)
		}
		b.Row(paired.NewRow(c.name, "", "", worst, nil, paired.Goal{Max: 1e-6}))
	}
	b.note("Pipelines of both schedules, with and without recomputation, are compared with one process within 1e-6 by a test " +
		"(`TestPipelineEqualsOneProcess`).")
	return nil
}

// trainNetwork trains a network and returns the results of the ranks, by rank.
func (b *bench) trainNetwork(ctx context.Context, backend string, ranks, steps, accumulated int) ([]trained, error) {
	list, err := b.train(ctx, ranks, "equality.py", backend, strconv.Itoa(steps), strconv.Itoa(accumulated))
	if err != nil {
		return nil, err
	}
	all := make([]trained, ranks)
	for _, r := range list {
		if err := json.Unmarshal(r.text, &all[r.rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r.rank, err)
		}
	}
	return all, nil
}

// differences counts the losses, and digests of all parameters, that differ.
func differences(got, want []trained) (n int) {
	for rank := range want {
		if got[rank].Digest != want[rank].Digest || len(got[rank].Losses) != len(want[rank].Losses) {
			n++
			continue
		}
		for i, loss := range want[rank].Losses {
			if got[rank].Losses[i] != loss {
				n++
			}
		}
	}
	return n
}
