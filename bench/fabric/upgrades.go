package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// upgrades replaces the process that carries the calls, and the policies, while calls
// flow.
func (b *bench) upgrades(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		w, err := f.nodeTopology(ctx)
		if err != nil {
			return err
		}
		rounds := b.Rounds(10, 2)
		s := swapping{Sets: []string{markingPolicies("even"), markingPolicies("odd")}, Swaps: 100, Upgrades: 50 / rounds}
		if b.Quick {
			s.Swaps, s.Upgrades = 10, 3
		}
		s.Seconds = b.Turn(4*time.Second, time.Second).Seconds()
		still, changed := runs{}, runs{}
		var total change
		for round := range rounds + 1 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a, err := w.run(load{Call: "marked", Size: 64, InFlight: busy, Seconds: s.Seconds})
			if err != nil {
				return err
			}
			c, done, err := runWithUpgrades(w, s)
			if err != nil {
				return err
			}
			if round > 0 {
				still[managed], changed[managed] = append(still[managed], a), append(changed[managed], c)
				total.Swaps, total.Upgrades = total.Swaps+done.Swaps, total.Upgrades+done.Upgrades
			}
		}
		b.changeRows(fmt.Sprintf("%d upgrades and %d policy swaps under full load: ", total.Upgrades, total.Swaps), "without", still, changed)
		return nil
	})
}

// nodeTopology starts a program that calls another program through a node.
func (f *processGroup) nodeTopology(ctx context.Context) (*topology, error) {
	dir := filepath.Join(f.bench.Dir, "node")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	w, node := &topology{name: managed}, "node:"+filepath.Join(dir, "calls.sock")
	if err := w.add(ctx, f, spec{Role: roleNode, Name: "node", Listen: node, Policies: markingPolicies("first")}); err != nil {
		return nil, err
	}
	if err := w.add(ctx, f, spec{Role: roleServer, Name: "node-server", Stack: stackFabric, App: "echo", Listen: node}); err != nil {
		return nil, err
	}
	if err := w.addClient(ctx, f, spec{Role: roleClient, Name: "node-client", Stack: stackFabric, Targets: map[string][]string{"": {node}}}); err != nil {
		return nil, err
	}
	err := w.known(ctx, "marked")
	return w, err
}

// knownWithin bounds the time that the pool takes to learn of a service.
const knownWithin = 10 * time.Second

// known waits until calls of a kind succeed.
func (w *topology) known(ctx context.Context, call string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	for ctx.Err() == nil {
		if err = w.client.do("load", load{Call: call, Size: 64, InFlight: 1, Seconds: 0.01}, new(result)); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// runWithUpgrades makes calls while the policies and the process are replaced.
func runWithUpgrades(w *topology, s swapping) (result, change, error) {
	var made change
	done := make(chan error, 1)
	go func() {
		err := w.others[0].do("swap", s, &made)
		if err == nil && made != (change{s.Swaps, s.Upgrades}) {
			err = fmt.Errorf("%+v of %d and %d", made, s.Swaps, s.Upgrades)
		}
		done <- err
	}()
	var r result
	err := w.client.do("load", load{Call: "marked", Size: 64, InFlight: busy, Seconds: s.Seconds}, &r)
	if changeErr := <-done; err == nil {
		err = changeErr
	}
	return r, made, err
}

// changeRows adds the rows of calls during which policies or processes are replaced.
func (b *bench) changeRows(title, reference string, still, changed runs) {
	b.None(title+"calls lost", "calls", changed.of(managed, func(r result) float64 { return float64(r.Lost) })...)
	b.None(title+"calls wrong", "calls", changed.of(managed, func(r result) float64 { return float64(r.Wrong) })...)
	b.row(paired.NewRow(title+"p99", "us", reference, changed.of(managed, p99), still.of(managed, p99), paired.Goal{MaxRatio: 2}))
	b.row(paired.NewRow(title+"calls", "calls", reference, changed.of(managed, callsOf), still.of(managed, callsOf), paired.Goal{}))
}
