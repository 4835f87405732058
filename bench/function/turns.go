package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/paired"
)

// A measurement runs for one turn and returns the value that it measured.
type measurement func(ctx context.Context) (float64, error)

// A series holds the values of one measurement, by turn.
type series struct {
	values []float64
	cores  []float64 // average number of cores that this process and its children used in the turn
}

// turns runs the measurements in turn, rounds times, after a first turn of each that does not
// count. It returns their values.
func (b *bench) turns(ctx context.Context, rounds int, measurements ...measurement) (all []series, err error) {
	stop, err := paired.WriteProfile(b.Profile("turns"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all = make([]series, len(measurements))
	for round := range rounds + 1 {
		for i, w := range measurements {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := all[i].turn(ctx, w, round > 0); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (s *series) turn(ctx context.Context, w measurement, counts bool) error {
	runtime.GC() // so that no turn collects the garbage of another
	begin, used := time.Now(), processorTime()
	v, err := w(ctx)
	if err == nil && counts {
		s.values = append(s.values, v)
		s.cores = append(s.cores, float64(processorTime()-used)/float64(time.Since(begin)))
	}
	return err
}

// timePerOperation returns the processor time of each operation in microseconds, where values are operations a
// second. It is the better measure on a machine with other load.
func (s *series) timePerOperation() []float64 {
	times := make([]float64, len(s.values))
	for i, v := range s.values {
		times[i] = s.cores[i] / v * 1e6
	}
	return times
}

// timePerTurn returns the processor time of each turn in seconds, where values are seconds.
func (s *series) timePerTurn() []float64 {
	times := make([]float64, len(s.values))
	for i, v := range s.values {
		times[i] = s.cores[i] * v
	}
	return times
}

// processorTime returns the processor time of this process so far and of its children that have
// ended.
func processorTime() (all time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		_ = unix.Getrusage(who, &u) // it cannot fail
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}

// perCall returns a measurement that repeats do for a turn, in microseconds a call.
func perCall(turn time.Duration, do func() error) measurement {
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

// faster returns a row with the ratio of the reference's times to the values, which must be at
// least least.
func faster(name, referenceName string, values, references []float64, least float64) paired.Row {
	times := make([]float64, len(values))
	for i, v := range values {
		times[i] = references[i] / v
	}
	return paired.NewRow(name+": times as fast as "+referenceName, "x", "", times, nil, paired.Goal{Min: least})
}
