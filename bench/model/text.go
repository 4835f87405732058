package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// serveLarge starts a node with the text model of 82 M parameters, pushed as "text".
func (b *bench) serveLarge(ctx context.Context, config ...string) (p *pool, file string, err error) {
	if file, err = b.largeText(); err != nil {
		return nil, "", err
	}
	if p, err = b.start(ctx, 1, nil); err != nil {
		return nil, "", err
	}
	if err := p.push(ctx, "text", file, lines(append([]string{"idle: -1s"}, config...)...)); err != nil {
		return nil, "", errors.Join(err, p.Close())
	}
	return p, file, nil
}

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// token measures the cost of a streamed token beyond decoding it.
func (b *bench) token(ctx context.Context) error {
	p, file, err := b.serveLarge(ctx, "threads: 1", "sequences: 1")
	if err != nil {
		return err
	}
	defer p.Close()
	own, err := direct(ctx, "llama", file, engine.Options{Threads: 1, Sequences: 1})
	if err != nil {
		return err
	}
	defer own.Close()
	tokens := 200
	if b.Quick {
		tokens = 48
	}
	var served, alone, servedBetween, aloneBetween []float64
	for round := range b.Rounds(7, 2) + 1 {
		before := processorTime(p.Node(nodeNames[0]).PID())
		s, err := complete(ctx, p.urls[0], newCompletion("text", prompt(uint64(round), 8), tokens), nil)
		if err != nil {
			return err
		}
		used := processorTime(p.Node(nodeNames[0]).PID()) - before
		before = ownTime()
		between, err := decode(ctx, own, prompt(uint64(round), 8), tokens)
		if err != nil {
			return err
		}
		usedAlone := ownTime() - before
		if round == 0 {
			continue
		}
		served, alone = append(served, 1000*milliseconds(used)/float64(tokens)), append(alone, 1000*milliseconds(usedAlone)/float64(tokens))
		servedBetween, aloneBetween = append(servedBetween, percentile99(s.between)), append(aloneBetween, percentile99(between))
	}
	extra := make([]float64, len(served))
	for i := range extra {
		extra[i] = served[i] - alone[i]
	}
	b.Row(paired.NewRow("a streamed token, 82 M parameters: processor time of the node beside direct decoding", "us", "", extra, nil, paired.Goal{Max: 100}))
	b.Row(paired.NewRow("p99 between streamed tokens", "ms", "direct decoding", servedBetween, aloneBetween, paired.Goal{MaxRatio: 1.05}))
	return nil
}

// decode generates tokens in this process and returns the times between them.
func decode(ctx context.Context, m engine.Model, prompt []int32, tokens int) (between []time.Duration, err error) {
	last := time.Time{}
	_, err = m.(engine.TextModel).Generate(ctx, engine.Generation{ //nolint:errcheck // a model for text
		Prompt: prompt, MaxTokens: tokens, LogProbs: -1, Sampling: engine.Sampling{Bias: map[int32]float32{2: -100}},
	}, func(engine.Token) error {
		now := time.Now()
		if !last.IsZero() {
			between = append(between, now.Sub(last))
		}
		last = now
		return nil
	})
	return between, err
}

// streams makes a number of clients stream concurrently and returns the tokens per second, and the
// times between tokens.
func streams(ctx context.Context, url string, n, tokens int, seed uint64) (perSec float64, between []time.Duration, err error) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	total := 0
	began := time.Now()
	for i := range n {
		wait.Go(func() {
			s, failed := complete(ctx, url, newCompletion("text", prompt(seed*1000+uint64(i), 32), tokens), nil)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				err = failed
				return
			}
			total += s.tokens
			between = append(between, s.between...)
		})
	}
	wait.Wait()
	return float64(total) / time.Since(began).Seconds(), between, err
}

// llamaServer compares the same file behind this program and behind llama-server.
func (b *bench) llamaServer(ctx context.Context) error {
	p, file, err := b.serveLarge(ctx, "threads: 2", "sequences: 16")
	if err != nil {
		return err
	}
	defer p.Close()
	peer, err := b.startPeer(ctx, file)
	if err != nil {
		b.note("The rows beside llama-server are missing: " + err.Error())
		return nil
	}
	defer peer.stop()
	tokens := 96
	if b.Quick {
		tokens = 24
	}
	for _, n := range []int{1, 8, 16} {
		var ours, theirs, ourTimes, theirTimes []float64
		for round := range b.Rounds(5, 1) + 1 {
			for _, way := range []struct {
				url         string
				rate, times *[]float64
			}{{p.urls[0], &ours, &ourTimes}, {peer.url, &theirs, &theirTimes}} {
				if err := awaitIdle(ctx, p.Node(nodeNames[0]).PID(), peer.cmd.Process.Pid); err != nil {
					return err
				}
				rate, between, err := streams(ctx, way.url, n, tokens, uint64(n*100+round))
				if err != nil {
					return err
				}
				if round > 0 {
					*way.rate, *way.times = append(*way.rate, rate), append(*way.times, percentile99(between))
				}
			}
		}
		b.Row(paired.NewRow(fmt.Sprintf("%d streams", n), "tokens/s", peer.name, ours, theirs, paired.Goal{MinRatio: 1}))
		b.Row(paired.NewRow(fmt.Sprintf("%d streams: p99 between tokens", n), "ms", peer.name, ourTimes, theirTimes, paired.Goal{MaxRatio: 1}))
	}
	return nil
}

// prefix measures a prompt whose first 512 tokens are cached.
func (b *bench) prefix(ctx context.Context) error {
	p, _, err := b.serveLarge(ctx, "threads: 2")
	if err != nil {
		return err
	}
	defer p.Close()
	shared := prompt(1, 512)
	first := func(prompt []int32, cached int) (float64, error) {
		s, err := complete(ctx, p.urls[0], newCompletion("text", prompt, 1), nil)
		if err == nil && s.cached < cached {
			err = fmt.Errorf("%d tokens of %d were cached", s.cached, cached)
		}
		return milliseconds(s.first), err
	}
	if _, err := first(append(shared[:512:512], prompt(2, 16)...), 0); err != nil {
		return err
	}
	var cached, fresh []float64
	for round := range b.Rounds(15, 3) {
		seed := uint64(10 + 2*round)
		known, err := first(append(shared[:512:512], prompt(seed, 16)...), 512)
		if err != nil {
			return err
		}
		unknown, err := first(prompt(seed+1, 528), 0)
		if err != nil {
			return err
		}
		cached, fresh = append(cached, known), append(fresh, unknown)
	}
	b.Row(paired.NewRow("a cached prefix of 512 tokens and 16 new ones: first token", "ms", "528 new tokens", cached, fresh, paired.Goal{MaxRatio: 0.1}))
	return nil
}

// cancel measures when the engine is free after a client has disconnected in the middle of a
// prompt.
func (b *bench) cancel(ctx context.Context) error {
	p, _, err := b.serveLarge(ctx, "threads: 2", "sequences: 4")
	if err != nil {
		return err
	}
	defer p.Close()
	var wait, warm, microBatch []float64
	hit := 0
	for round := range b.Rounds(100, 5) {
		seed := uint64(round) * 10
		// Another stream is in progress, whose client stays.
		var beside sync.WaitGroup
		started := make(chan struct{})
		beside.Go(func() {
			s, err := complete(ctx, p.urls[0], newCompletion("text", prompt(seed, 8), 40), func(s *stream) {
				if s.first > 0 && len(s.between) == 0 {
					close(started)
				}
			})
			if err != nil || s.tokens != 40 {
				hit++
			}
		})
		select {
		case <-started:
		case <-ctx.Done():
			return ctx.Err()
		}
		going, leave := context.WithTimeout(ctx, 100*time.Millisecond)
		_, _ = complete(going, p.urls[0], newCompletion("text", prompt(seed+1, 3000), 1), nil) // cancelled
		leave()
		beside.Wait()
		going, leave = context.WithTimeout(ctx, 200*time.Millisecond)
		_, _ = complete(going, p.urls[0], newCompletion("text", prompt(seed+2, 3000), 1), nil) // again, alone
		leave()
		after, err := complete(ctx, p.urls[0], newCompletion("text", prompt(seed+3, 8), 1), nil)
		if err != nil {
			return err
		}
		alone, err := complete(ctx, p.urls[0], newCompletion("text", prompt(seed+4, 8), 1), nil)
		if err != nil {
			return err
		}
		batch, err := complete(ctx, p.urls[0], newCompletion("text", prompt(seed+5, 256), 1), nil)
		if err != nil {
			return err
		}
		wait, warm, microBatch = append(wait, milliseconds(after.first)), append(warm, milliseconds(alone.first)), append(microBatch, milliseconds(batch.first))
	}
	limit := max(50, paired.Median(microBatch))
	b.None(fmt.Sprintf("%d clients gone in a long prompt: others that were hit", len(wait)), "streams", float64(hit))
	b.Row(paired.NewRow("first token of the next request after a client has gone in a long prompt", "ms", "without", wait, warm,
		paired.Goal{Max: float64(int(paired.Median(warm) + limit))}))
	b.note(fmt.Sprintf("A micro-batch of 256 tokens takes %.0f ms.", paired.Median(microBatch)))
	return nil
}
