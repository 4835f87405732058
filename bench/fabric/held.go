package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// heldStreams are the streams that a program holds open, and their connection, which all its calls
// use meanwhile.
type heldStreams struct {
	conn   conn
	cancel context.CancelFunc
}

// hold opens streams that stay open until the next hold, and returns the seconds that it took. Each
// stream has carried a message each way.
func (a *actor) hold(ctx context.Context, streams int) (any, error) {
	if a.held != nil {
		a.held.cancel()
		err := a.held.conn.Close()
		if a.held = nil; err != nil {
			return nil, err
		}
	}
	if streams == 0 {
		return 0.0, nil
	}
	c, err := dial(a.spec.Stack, a.spec.target(""), a.spec.Identity)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	a.held = &heldStreams{c, cancel}
	began := time.Now()
	for n := range streams {
		once, err := pingPongCaller(ctx, c, 1)
		if err == nil {
			err = once()
		}
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", n, err)
		}
	}
	return time.Since(began).Seconds(), nil
}

// keptOpen is a connection that outlasts the load that uses it.
type keptOpen struct{ conn }

func (keptOpen) Close() error { return nil }

// connect returns the connection of a load: the connection of the held streams, or a new one.
func (a *actor) connect() (conn, error) {
	if a.held != nil {
		return keptOpen{a.held.conn}, nil
	}
	return dial(a.spec.Stack, a.spec.target(""), a.spec.Identity)
}

// manyStreams is the number of streams that a program holds in the section "held".
const manyStreams = 10_000

// heldSection measures unary calls without and beside held streams of the same program.
func (b *bench) heldSection(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		direct, err := f.echoTopology(ctx, plain, "held-grpc", stackGRPC, "")
		if err != nil {
			return err
		}
		all := []*topology{direct}
		for _, name := range []string{throughNode, betweenNodes} {
			w, err := f.passageTopology(ctx, name)
			if err != nil {
				return err
			}
			all = append(all, w)
		}
		streams := manyStreams
		if b.Quick {
			streams /= 10
		}
		alone, beside, opening := runs{}, runs{}, map[string][]float64{}
		l := load{Call: "echo", Size: 64, InFlight: busy, Seconds: b.Turn(time.Second, 100*time.Millisecond).Seconds()}
		for range b.Rounds(3, 1) {
			for _, w := range all {
				took, err := heldRound(ctx, w, l, streams, alone, beside)
				if err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				opening[w.name] = append(opening[w.name], took)
			}
		}
		for _, w := range all[1:] {
			title := fmt.Sprintf("%d held streams, %s: ", streams, w.name)
			b.row(paired.NewRow(title+"p99 of unary calls", "us", "without them", beside.of(w.name, p99), alone.of(w.name, p99), paired.Goal{MaxRatio: 2}))
			b.row(paired.NewRow(title+"time to open them", "s", plain, opening[w.name], opening[plain], paired.Goal{}))
		}
		return nil
	})
}

// heldRound makes the calls of l without and beside the streams, and returns how long it took to
// open those, in seconds.
func heldRound(ctx context.Context, w *topology, l load, streams int, alone, beside runs) (took float64, err error) {
	before, err := turns(ctx, 1, l, w)
	if err != nil {
		return 0, err
	}
	if err := w.client.do("hold", streams, &took); err != nil {
		return 0, err
	}
	with, err := turns(ctx, 1, l, w)
	if err := errors.Join(err, w.client.do("hold", 0, new(float64))); err != nil {
		return 0, err
	}
	alone[w.name], beside[w.name] = append(alone[w.name], before[w.name]...), append(beside[w.name], with[w.name]...)
	return took, nil
}
