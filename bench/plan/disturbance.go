package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// A run is disturbed if the host of the virtual machine and processes outside of the bench took more
// than disturbedShare, in %, of the processors meanwhile. It is repeated until it was undisturbed, at
// most attempts times, and as long as all repetitions together have not taken the time that they
// may; the last one counts.
const (
	disturbedShare = 2.0
	attempts       = 3
)

// resolution is the processor time below which a difference is within the errors of the counters:
// those of running processes are cut off to clock ticks of 10 ms.
const resolution = 30 * time.Millisecond

// usage is the processor time that was used or withheld so far.
type usage struct{ all, own, stolen time.Duration }

// usageSoFar reads the counters of the machine and of the bench.
func usageSoFar() (u usage, err error) {
	if u.all, u.stolen, err = rig.MachineProcessor(); err != nil {
		return u, err
	}
	u.own, err = rig.OwnProcessor()
	return u, err
}

// timing returns the shares of a run that took some time between two readings.
func timing(what string, before, after usage, took time.Duration, processors int) paired.Timing {
	capacity := took.Seconds() * float64(processors)
	stolen := after.stolen - before.stolen
	foreign := max(0, after.all-before.all-(after.own-before.own))
	share := func(d time.Duration) float64 { return math.Round(1000*d.Seconds()/capacity) / 10 }
	return paired.Timing{
		What: what, Seconds: took.Seconds(), Stolen: share(stolen), Foreign: share(foreign),
		Disturbed: (stolen + foreign).Seconds() > max(disturbedShare/100*capacity, resolution.Seconds()),
	}
}

// observe calls run, and returns how disturbed it was.
func observe(what string, run func() error) (paired.Timing, error) {
	before, err := usageSoFar()
	if err != nil {
		return paired.Timing{}, err
	}
	began := time.Now()
	if err := run(); err != nil {
		return paired.Timing{}, err
	}
	took := time.Since(began)
	after, err := usageSoFar()
	return timing(what, before, after, took, runtime.NumCPU()), err
}

// measure calls run, and again if it was disturbed. It adds the lateness of the emulation during the
// run that counts, and returns whether that run was disturbed.
func (b *runner) measure(what string, late *lateness, run func() error) (disturbed bool, err error) {
	for attempt := 1; ; attempt++ {
		var of lateness
		t, err := b.observe(what, func() error { return b.lateDuring(&of, run) })
		if err != nil {
			return false, err
		}
		t.Repeated = t.Disturbed && attempt < attempts && b.repeated < b.repeatFor
		b.Timing(t)
		if !t.Repeated {
			late.sum(of)
			return t.Disturbed, nil
		}
		b.repeated += time.Duration(t.Seconds * float64(time.Second))
		fmt.Fprintf(os.Stderr, "  %s: repeated, %.1f %% of the processors were stolen and %.1f %% used by other processes\n", what, t.Stolen, t.Foreign)
	}
}

// disturbance reports how many runs of all sections were disturbed, which shows whether the times of
// the other rows can be trusted.
func (b *runner) disturbance() {
	var stolen, foreign []float64
	var runs, repeated, disturbed int
	for i := range b.Report.Parts {
		timings := b.Report.Parts[i].Timings
		r, again, d := paired.Count(timings)
		runs, repeated, disturbed = runs+r, repeated+again, disturbed+d
		for k := range timings {
			if !timings[k].Repeated {
				stolen, foreign = append(stolen, timings[k].Stolen), append(foreign, timings[k].Foreign)
			}
		}
	}
	because := func(row paired.Row) paired.Row {
		return row.Because("The machine was busy with something else. Times, and so errors, are those of its scheduler; " +
			"round trips, bytes and processor times hold.")
	}
	b.Row(because(paired.NewRow("processors during the runs that count: share stolen by the host", "%", "", stolen, nil, paired.Goal{Max: disturbedShare})))
	b.Row(because(paired.NewRow("processors during the runs that count: share of other processes", "%", "", foreign, nil, paired.Goal{Max: disturbedShare})))
	b.Report.Notes = append(b.Report.Notes, fmt.Sprintf("A run is disturbed if more than %g %% of the processors, and more than %v, were stolen or used by other processes. "+
		"A disturbed run was repeated, up to %d times, while all repetitions together took no more than %v: %d runs count, %d were repeated, and %d of those that count stayed disturbed.",
		disturbedShare, resolution, attempts-1, b.repeatFor, runs, repeated, disturbed))
}
