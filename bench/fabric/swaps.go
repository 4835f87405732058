package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// markingPolicies returns three policies that decide, and two that mark a call: a call that was
// decided by parts of two sets has two different marks.
func markingPolicies(mark string) string {
	return threePolicies + strings.NewReplacer("FIRST", firstKey, "SECOND", secondKey, "MARK", mark).Replace(`
  - name: mark
    rewrite: {metadata: {set: {FIRST: "'MARK'"}}}
  - name: mark-again
    rewrite: {metadata: {set: {SECOND: "'MARK'"}}}
`)
}

// busy is the number of calls in flight under full load.
const busy = 8

// swaps puts policies in force in turn while calls flow.
func (b *bench) swaps(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		w, err := f.markedTopology(ctx)
		if err != nil {
			return err
		}
		rounds := b.Rounds(10, 4)
		s := swapping{Sets: []string{markingPolicies("even"), markingPolicies("odd")}, Swaps: 10_000 / rounds}
		s.Seconds = b.Turn(2*time.Second, 500*time.Millisecond).Seconds()
		still, swapped := runs{}, runs{}
		for round := range rounds + 1 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a, err := w.run(load{Call: "marked", Size: 64, InFlight: busy, Seconds: s.Seconds})
			if err != nil {
				return err
			}
			c, err := runWithSwaps(w, s)
			if err != nil {
				return err
			}
			if round > 0 {
				still[managed], swapped[managed] = append(still[managed], a), append(swapped[managed], c)
			}
		}
		b.swapRows(s.Swaps*rounds, still, swapped)
		return nil
	})
}

func (f *processGroup) markedTopology(ctx context.Context) (*topology, error) {
	w, server := &topology{name: managed}, f.bench.socket("swaps")
	if err := w.add(ctx, f, spec{Role: roleServer, Name: "swaps-server", Stack: stackFabric, App: "echo", Listen: server}); err != nil {
		return nil, err
	}
	s := spec{
		Role: roleManaged, Name: "swaps-middle", Listen: f.bench.socket("swaps-middle"), Policies: markingPolicies("first"),
		Targets: map[string][]string{"grpc.testing.TestService": {server}},
	}
	if err := w.add(ctx, f, s); err != nil {
		return nil, err
	}
	err := w.addClient(ctx, f, spec{Role: roleClient, Name: "swaps-client", Stack: stackFabric, Targets: map[string][]string{"": {s.Listen}}})
	return w, err
}

// runWithSwaps makes calls while the policies are swapped.
func runWithSwaps(w *topology, s swapping) (result, error) {
	done := make(chan error, 1)
	go func() {
		swaps := 0
		err := w.others[1].do("swap", s, &swaps)
		if err == nil && swaps != s.Swaps {
			err = fmt.Errorf("%d swaps of %d", swaps, s.Swaps)
		}
		done <- err
	}()
	var r result
	err := w.client.do("load", load{Call: "marked", Size: 64, InFlight: busy, Seconds: s.Seconds}, &r)
	if swapErr := <-done; err == nil {
		err = swapErr
	}
	return r, err
}

func (b *bench) swapRows(swaps int, still, swapped runs) {
	title := fmt.Sprintf("%d policy swaps under full load: ", swaps)
	b.changeRows(title, "without swaps", still, swapped)
}

func callsOf(r result) float64 { return float64(r.Calls) }
