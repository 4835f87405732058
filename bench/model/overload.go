package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// outcomes count the requests of an open loop.
type outcomes struct {
	mu                       sync.Mutex
	done, late, refused, bad int
	work                     int             // of the requests that succeeded: requests, or tokens
	refusals                 []time.Duration // durations of the refusals
	reason                   error
}

// count counts a request that began at sent. late reports that its result, its first token or its
// error came after its deadline: such an error ends an accepted request.
func (o *outcomes) count(sent time.Time, late bool, work int, err error) {
	took := time.Since(sent)
	o.mu.Lock()
	defer o.mu.Unlock()
	status, _ := errors.AsType[*statusError](err)
	unavailable := status != nil && (status.status == http.StatusTooManyRequests || status.status == http.StatusServiceUnavailable)
	switch {
	case late && (err == nil || unavailable):
		o.late++
		o.work += work
	case err == nil:
		o.done++
		o.work += work
	case unavailable:
		o.refused++
		o.refusals = append(o.refusals, took)
	default:
		o.bad++
		o.reason = err
	}
}

// overloadRows adds the rows of an overload.
func (b *bench) overloadRows(what, unit string, o *outcomes, capacity, throughput []float64) {
	b.Row(paired.NewRow(what+" at three times the capacity: throughput", unit, "capacity", throughput, capacity, paired.Goal{MinRatio: 0.95}).
		Because("three times as many connections take processor time from the engine on this machine"))
	accepted := float64(o.done + o.late + o.bad)
	b.Row(paired.NewRow(what+" at three times the capacity: of the accepted, within their deadline", "%", "", []float64{100 * float64(o.done) / max(accepted, 1)}, nil, paired.Goal{Min: 99}).
		Because(fmt.Sprintf("%d in time, %d late, %d failed (%v)", o.done, o.late, o.bad, o.reason)))
	b.Row(paired.NewRow(what+" at three times the capacity: a refusal, p99", "ms", "", []float64{percentile99(o.refusals)}, nil, paired.Goal{Max: 5}).
		Because("client and node wait for a core: the engine has all of them"))
	b.note(fmt.Sprintf("Overload, %s: %d accepted and in time, %d late, %d refused, %d failed.", what, o.done, o.late, o.refused, o.bad))
}

// overload measures a model for tensors at three times its capacity.
func (b *bench) overload(ctx context.Context) error {
	file, err := b.graphFile("slow.onnx", func() *onnxfile.Graph { return onnxfile.Slow(256, 20) })
	if err != nil {
		return err
	}
	p, err := b.start(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.push(ctx, "slow", file, oneThread("queue: {size: 64}")); err != nil {
		return err
	}
	const deadline = 250 * time.Millisecond
	q, err := prepare(deadline, model.Tensor{Name: "x", Type: model.FP32, Shape: []int64{256, 256}, Data: make([]byte, 256*256*4)})
	if err != nil {
		return err
	}
	turn := b.Turn(4*time.Second, time.Second)
	var capacity, throughput []float64
	var o outcomes
	for round := range b.Rounds(5, 2) + 1 {
		l := closedLoop(ctx, 4, turn, func(ctx context.Context) error { return q.at(ctx, p.urls[0], "slow") })
		if err := errors.Join(l.failed...); err != nil {
			return err
		}
		counted := &o
		if round == 0 {
			counted = &outcomes{}
		}
		before := counted.work
		elapsed := openLoop(ctx, 3*l.perSec, turn, func(ctx context.Context) {
			sent := time.Now()
			err := q.at(ctx, p.urls[0], "slow")
			work := 0
			if err == nil {
				work = 1
			}
			counted.count(sent, time.Since(sent) > deadline, work, err)
		})
		if round > 0 {
			capacity, throughput = append(capacity, l.perSec), append(throughput, float64(o.work-before)/elapsed.Seconds())
		}
	}
	b.overloadRows("tensors", "requests/s", &o, capacity, throughput)
	return nil
}

// textOverload measures a model for text at three times its capacity.
func (b *bench) textOverload(ctx context.Context) error {
	file, err := b.smallText()
	if err != nil {
		return err
	}
	p, err := b.start(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	const deadline = 2 * time.Second
	if err := p.push(ctx, "text", file, oneThread("sequences: 8", "queue: {size: 64, timeout: 2s}")); err != nil {
		return err
	}
	const tokens = 32
	turn := b.Turn(4*time.Second, 1500*time.Millisecond)
	var capacity, throughput []float64
	var o outcomes
	for round := range b.Rounds(5, 2) + 1 {
		l := closedLoop(ctx, 8, turn, func(ctx context.Context) error {
			_, err := complete(ctx, p.urls[0], newCompletion("text", prompt(uint64(time.Now().UnixNano()), 16), tokens), nil)
			return err
		})
		if err := errors.Join(l.failed...); err != nil {
			return err
		}
		counted := &o
		if round == 0 {
			counted = &outcomes{}
		}
		before := counted.work
		elapsed := openLoop(ctx, 3*l.perSec, turn, func(ctx context.Context) {
			sent := time.Now()
			s, err := complete(ctx, p.urls[0], newCompletion("text", prompt(uint64(sent.UnixNano()), 16), tokens), nil)
			if s == nil {
				s = &stream{}
			}
			first := cmp.Or(s.first, time.Since(sent))
			counted.count(sent, first > deadline, s.tokens, err)
		})
		if round > 0 {
			capacity, throughput = append(capacity, tokens*l.perSec), append(throughput, float64(o.work-before)/elapsed.Seconds())
		}
	}
	b.overloadRows("text", "tokens/s", &o, capacity, throughput)
	return nil
}
