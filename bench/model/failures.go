package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
)

// reload measures the first token of a model that was unloaded, and the fetching of a model.
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

// fetch measures the loading of models whose files another node has.
func (b *bench) fetch(ctx context.Context, p *pool, file string, link netem.Link) error {
	var fetched, again []float64
	size, err := fileSize(file)
	if err != nil {
		return err
	}
	for round := range b.Rounds(5, 1) {
		name, content := fmt.Sprintf("far%d", round), fmt.Sprintf("far%d.gguf", round)
		// Each has a content of its own, which the second node has never seen.
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
		for _, times := range []*[]float64{&fetched, &again} {
			took, err := timed(func() error { return p.repository(ctx, 1, name, "load") })
			if err != nil {
				return err
			}
			*times = append(*times, took)
			if err := p.repository(ctx, 1, name, "unload"); err != nil {
				return err
			}
		}
	}
	rate := float64(size) / (paired.Median(fetched) - paired.Median(again)) * 1000 / (1 << 20)
	b.Row(paired.NewRow("files of a model from another node through 1 Gbit/s", "MiB/s", "the link", []float64{rate}, []float64{link.BitsPerSecond / 8 / (1 << 20)}, paired.Goal{MinRatio: 0.9}).
		Because("the difference of two loadings, in which the first also verifies and stores the file on these cores"))
	return nil
}

// killed counts the ends of streams in whose middle something was killed.
type killed struct{ same, other, clear, slow int }

// kill kills the engine or the node of a stream in its middle.
func (b *bench) kill(ctx context.Context) error {
	file, err := b.smallText()
	if err != nil {
		return err
	}
	p, err := b.start(ctx, 3, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	// The client's node serves nothing itself.
	if err := p.push(ctx, "text", file, "threads: 1\nsequences: 1\nidle: -1s\nnodes: [dinghy, ketch]\nreplicas: 2\n"); err != nil {
		return err
	}
	request := newCompletion("text", prompt(1, 16), 600)
	whole, err := complete(ctx, p.urls[0], request, nil)
	if err != nil {
		return err
	}
	for _, victim := range []string{"engine", "node"} {
		// Together they are 100; a node takes some seconds to start again.
		count := b.Rounds(75, 3)
		if victim == "node" {
			count = b.Rounds(25, 3)
		}
		var k killed
		var resumed []float64
		for range count {
			pause, err := b.killOnce(ctx, p, victim, request, whole.text.String(), &k)
			if err != nil {
				return err
			}
			resumed = append(resumed, pause)
		}
		b.None(fmt.Sprintf("%s killed in the middle of a stream, %d times: neither the same text nor a clear error within 5 s", victim, count), "streams", float64(k.other), float64(k.slow))
		b.note(fmt.Sprintf("Kill of the %s: %d streams went on with the same text, %d ended with a clear error within 5 s. The longest pause took %.0f ms (median).",
			victim, k.same, k.clear, paired.Median(resumed)))
	}
	return nil
}

// killOnce streams, kills a victim after a number of tokens and compares the text. It returns the
// longest pause in milliseconds.
func (b *bench) killOnce(ctx context.Context, p *pool, victim string, q *completion, want string, k *killed) (float64, error) {
	var node string
	s, err := complete(ctx, p.urls[0], q, func(s *stream) {
		if len(s.between) != 20 {
			return
		}
		node = p.busy(p.names[1:])
		switch n := p.Node(node); victim {
		case "engine":
			for _, pid := range tree(n.PID())[1:] {
				if isWorker(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		case "node":
			_ = n.Kill()
		}
	})
	var pause time.Duration
	if len(s.between) > 0 {
		pause = slices.Max(s.between)
	}
	switch {
	case err == nil && s.text.String() == want:
		k.same++
	case err == nil:
		k.other++
	case pause > 5*time.Second:
		k.slow++
	default:
		k.clear++
	}
	if victim == "node" && node != "" {
		if err := p.Node(node).Up(ctx, "--http", "127.0.0.1:0", "--grpc", "none"); err != nil {
			return 0, err
		}
	}
	return milliseconds(pause), waitFor(ctx, "both replicas are loaded", func() bool {
		return p.repository(ctx, 1, "text", "load") == nil && p.repository(ctx, 2, "text", "load") == nil || p.refind(ctx)
	})
}
