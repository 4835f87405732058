package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// A way does something for one turn, and returns what was measured.
type way func(ctx context.Context) (float64, error)

// turns gives each way a turn, rounds times, after a first turn each that does not
// count. It returns what each way measured.
func turns(ctx context.Context, rounds int, ways ...way) ([][]float64, error) {
	all := make([][]float64, len(ways))
	for round := range rounds + 1 {
		for i, w := range ways {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			runtime.GC() // nobody collects what others left
			v, err := w(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				all[i] = append(all[i], v)
			}
		}
	}
	return all, nil
}

// perCall is a way that repeats do for a turn and measures microseconds for each.
func perCall(turn time.Duration, do func() error) way {
	return func(context.Context) (float64, error) {
		begin, n := time.Now(), 0
		for {
			if err := do(); err != nil {
				return 0, err
			}
			n++
			if took := time.Since(begin); took >= turn {
				return micro(took) / float64(n), nil
			}
		}
	}
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// rounds is how often each way has its turn.
func (b *bench) rounds(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// turn is how long one way has its turn.
func (b *bench) turn(full, quick time.Duration) time.Duration {
	if b.quick {
		return quick
	}
	return full
}

func (b *bench) row(r paired.Row) {
	b.report.Rows = append(b.report.Rows, r)
	fmt.Fprintf(os.Stderr, "  %-70s %s %s, %s %s, ratio %s (%s)\n", r.Name, paired.Number(r.Value), r.Unit,
		r.ReferenceName, paired.Number(r.Reference), paired.Number(r.Ratio), r.Wanted)
}

// faster is a row of how many times as long the reference takes, which has to be least.
func faster(name, referenceName string, values, references []float64, least float64) paired.Row {
	times := make([]float64, len(values))
	for i, v := range values {
		times[i] = references[i] / v
	}
	return paired.NewRow(name+": times as fast as "+referenceName, "x", "", times, nil, paired.Goal{Min: least})
}

// because gives a row that falls short its reason.
func because(r paired.Row, reason string) paired.Row {
	if !r.Holds {
		r.Reason = reason
	}
	return r
}
