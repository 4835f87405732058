package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
)

// reload measures the first token of a model that was unloaded, and the fetching of a model's
// files.
func (b *bench) reload(ctx context.Context) error {
	file, err := b.largeText()
	if err != nil {
		return err
	}
	link := netem.Link{RTT: 100 * time.Microsecond, BitsPerSecond: 1e9}
	p, err := b.start(ctx, 2, &link)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.push(ctx, "text", file, "threads: 2\nnodes: [harbour]\n"); err != nil {
		return err
	}
	first := func(seed uint64) (float64, error) {
		s, err := complete(ctx, p.urls[0], newCompletion("text", prompt(seed, 8), 1), nil)
		return milliseconds(s.first), err
	}
	var cold []float64
	for round := range b.Rounds(15, 3) {
		if err := p.repository(ctx, 0, "text", "unload"); err != nil {
			return err
		}
		unloaded, err := first(uint64(round))
		if err != nil {
			return err
		}
		loaded, err := first(uint64(round + 1000))
		if err != nil {
			return err
		}
		cold = append(cold, unloaded-loaded)
	}
	b.Row(paired.NewRow("unloaded model of 87 MB from a local file: first token beside that of a loaded one", "ms", "", cold, nil, paired.Goal{Max: 300}))
	return b.fetch(ctx, p, file, link)
}

// fetch measures the transfer of a model's file from another node: from the request to load the model
// until the verified file is in the store.
func (b *bench) fetch(ctx context.Context, p *pool, file string, link netem.Link) error {
	var rates []float64
	for round := range b.Rounds(5, 1) {
		name, content := fmt.Sprintf("far%d", round), fmt.Sprintf("far%d.gguf", round)
		// Each file has different content, which the second node has never seen.
		other, err := distinct(b.Dir, content, file, round)
		if err != nil {
			return err
		}
		if err := p.push(ctx, name, other, "threads: 2\nnodes: [dinghy]\n", "--no-wait"); err != nil {
			return err
		}
		if err := waitFor(ctx, "the second node knows the model", func() bool { return p.knows(ctx, 1, name) }); err != nil {
			return err
		}
		began := time.Now()
		if err := p.repository(ctx, 1, name, "load"); err != nil {
			return err
		}
		size, stored, err := storedFile(p.Node(p.names[1]).Data(), other)
		if err != nil {
			return err
		}
		if err := p.repository(ctx, 1, name, "unload"); err != nil {
			return err
		}
		rates = append(rates, float64(size)/stored.Sub(began).Seconds()/(1<<20))
	}
	b.Row(paired.NewRow("files of a model from another node through 1 Gbit/s", "MiB/s", "the link", rates, []float64{link.BitsPerSecond / 8 / (1 << 20)}, paired.Goal{MinRatio: 0.9}).
		Because("until the file is verified and on the disk, by nodes that share these cores with the emulated link"))
	return nil
}
