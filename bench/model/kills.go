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

// A victim is a part of the pool that is killed in the middle of a stream.
type victim struct {
	name  string
	count int // kills in a whole run: 100 for all victims together
	kill  func(p *pool, node string) error
	// repair undoes the kill once the stream has ended.
	repair func(ctx context.Context, p *pool, node string) error
}

// killBudget bounds the kills of a victim on a machine that is slow or busy, so that the section
// takes some four minutes at most.
const killBudget = 80 * time.Second

//nolint:gochecknoglobals // a table
var victims = []victim{
	{"engine", 75, killEngine, unload},
	{"node", 10, killNode, restart},
	{"link", 15, cutLink, repairLink},
}

func killEngine(p *pool, node string) error {
	for _, pid := range tree(p.Node(node).PID())[1:] {
		if isWorker(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	return nil
}

func killNode(p *pool, node string) error { return p.Node(node).Kill() }

func cutLink(p *pool, node string) error {
	p.Node(node).CutLink(true)
	return nil
}

func repairLink(_ context.Context, p *pool, node string) error {
	p.Node(node).CutLink(false)
	return nil
}

// unload makes the next load start afresh: the node delays the restarts of an engine that ends
// often.
func unload(ctx context.Context, p *pool, node string) error {
	return p.repository(ctx, slices.Index(p.names, node), "text", "unload")
}

func restart(ctx context.Context, p *pool, node string) error {
	return p.Node(node).Up(ctx, "--http", "127.0.0.1:0", "--grpc", "none")
}

// A killTally counts the ends of streams in whose middle a victim was killed.
type killTally struct {
	same, other, clear, slow int
	pauses                   []float64 // the longest of each stream, in milliseconds
}

// kill kills the engine of a stream, its node, or the link to the node.
func (b *bench) kill(ctx context.Context) error {
	file, err := b.smallText()
	if err != nil {
		return err
	}
	p, err := b.startLinked(ctx, 3, func(i int) *netem.Link {
		if i == 0 {
			return nil
		}
		return &netem.Link{}
	})
	if err != nil {
		return err
	}
	defer p.Close()
	// The client's node executes no model.
	if err := p.push(ctx, "text", file, "threads: 1\nsequences: 1\nidle: -1s\nnodes: [dinghy, ketch]\nreplicas: 2\n"); err != nil {
		return err
	}
	request := newCompletion("text", prompt(1, 16), 600)
	whole, err := complete(ctx, p.urls[0], request, nil)
	if err != nil {
		return err
	}
	for i := range victims {
		if err := killOften(ctx, b, p, &victims[i], request, whole.text.String()); err != nil {
			return fmt.Errorf("%s: %w", victims[i].name, err)
		}
	}
	return nil
}

// killOften adds a row for a victim.
func killOften(ctx context.Context, b *bench, p *pool, v *victim, q *completion, want string) error {
	var k killTally
	began := time.Now()
	for range b.Rounds(v.count, 3) {
		if time.Since(began) > killBudget {
			break
		}
		if err := killOnce(ctx, p, v, q, want, &k); err != nil {
			return err
		}
	}
	b.None(fmt.Sprintf("%s killed in the middle of a stream, %d times: neither the same text nor a clear error within 5 s", v.name, len(k.pauses)),
		"streams", float64(k.other), float64(k.slow))
	b.note(fmt.Sprintf("Kill of the %s: %d streams went on with the same text, %d ended with a clear error within 5 s. The longest pause took %.0f ms (median).",
		v.name, k.same, k.clear, paired.Median(k.pauses)))
	return nil
}

// killOnce streams, kills the victim after a number of tokens and compares the text.
func killOnce(ctx context.Context, p *pool, v *victim, q *completion, want string, k *killTally) error {
	var node string
	var failed error
	before, last := p.workerTimes(p.names[1:]), time.Time{}
	s, err := complete(ctx, p.urls[0], q, func(s *stream) {
		last = time.Now()
		if len(s.between) == 20 {
			node = p.busiest(p.names[1:], before)
			failed = v.kill(p, node)
		}
	})
	if failed != nil {
		return failed
	}
	if node == "" {
		return fmt.Errorf("the stream ended before 20 tokens: %w", err)
	}
	pause := slices.Max(s.between)
	if err != nil {
		pause = max(pause, time.Since(last)) // until the error
	}
	k.pauses = append(k.pauses, milliseconds(pause))
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
	if err := v.repair(ctx, p, node); err != nil {
		return err
	}
	return waitFor(ctx, "both replicas are loaded", func() bool {
		return p.repository(ctx, 1, "text", "load") == nil && p.repository(ctx, 2, "text", "load") == nil || p.refind(ctx)
	})
}
