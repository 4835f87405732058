package plan

import (
	"context"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// everything calls visit with each choice of the job, whether it fits or not.
func everything(j *Job, visit func(Choice)) {
	for _, d := range j.divisions() {
		for _, recompute := range []bool{false, true} {
			if !recompute || j.Recompute {
				cuts(j, nil, 0, func(stages []Stage) {
					visit(Choice{Stages: stages, Replicas: d.replicas, MicroBatch: d.micro, Recompute: recompute})
				})
			}
		}
	}
}

// cuts calls visit with each division of the layers from first on, on each kind of device.
func cuts(j *Job, stages []Stage, first int, visit func([]Stage)) {
	if first == len(j.Layers) {
		visit(append([]Stage(nil), stages...))
		return
	}
	for end := first + 1; end <= len(j.Layers); end++ {
		for d := range j.Devices {
			cuts(j, append(stages, Stage{first, end, d}), end, visit)
		}
	}
}

// bruteForce returns the least value of all choices, +Inf if none fits.
func bruteForce(j *Job, o Objective) float64 {
	best := math.Inf(1)
	everything(j, func(c Choice) {
		stages := len(c.Stages)
		if j.Stages > 0 && stages != j.Stages || j.Ranks > 0 && stages*c.Replicas > j.Ranks {
			return
		}
		if p, err := j.Evaluate(c); err == nil {
			best = min(best, o.value(p.Time, p.Cost))
		}
	})
	return best
}

// Small numbers without a fraction make ties likely, which a wrong dominance rule gets wrong.
func number(low, high int) *rapid.Generator[float64] {
	return rapid.Map(rapid.IntRange(low, high), func(n int) float64 { return float64(n) })
}

func layers() *rapid.Generator[Layer] {
	return rapid.Custom(func(t *rapid.T) Layer {
		return Layer{
			Name: "l", Parameters: number(0, 8).Draw(t, "parameters"), Output: number(0, 9).Draw(t, "output"),
			Stored: number(0, 4).Draw(t, "stored"), Forward: number(0, 5).Draw(t, "forward"),
			Backward: number(0, 9).Draw(t, "backward"), Launch: number(0, 2).Draw(t, "launch"),
		}
	})
}

func devices() *rapid.Generator[Device] {
	return rapid.Custom(func(t *rapid.T) Device {
		return Device{
			Name: "d", Speed: number(1, 4).Draw(t, "speed"), Memory: number(5, 120).Draw(t, "memory"),
			Bandwidth: number(1, 5).Draw(t, "bandwidth"), Latency: number(0, 1).Draw(t, "latency"),
			Price: number(0, 5).Draw(t, "price"), Count: rapid.IntRange(0, 4).Draw(t, "count"),
		}
	})
}

func jobs() *rapid.Generator[*Job] {
	return rapid.Custom(func(t *rapid.T) *Job {
		return &Job{
			Layers:    rapid.SliceOfN(layers(), 1, 5).Draw(t, "layers"),
			Devices:   rapid.SliceOfN(devices(), 1, 3).Draw(t, "devices"),
			Batch:     rapid.SampledFrom([]int{1, 2, 4, 6, 8}).Draw(t, "batch"),
			Optimizer: number(0, 3).Draw(t, "optimizer"),
			Schedule:  rapid.SampledFrom([]Schedule{GPipe, OneForwardOneBackward}).Draw(t, "schedule"),
			Reduction: rapid.SampledFrom([]Reduction{Ring, Store, PlainStore}).Draw(t, "reduction"),
			Recompute: rapid.Bool().Draw(t, "recompute"),
		}
	})
}

func TestBestIsTheBestOfAllChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		if rapid.Bool().Draw(t, "degrees given") {
			j.Stages, j.Ranks = rapid.IntRange(0, len(j.Layers)).Draw(t, "stages"), rapid.IntRange(0, 8).Draw(t, "ranks")
		}
		o := Objective{Cheapest: rapid.Bool().Draw(t, "cheapest")}
		if rapid.Bool().Draw(t, "bounded") {
			o.MaxTime, o.MaxCost = number(1, 400).Draw(t, "most time"), number(1, 2000).Draw(t, "most cost")
		}
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		want := bruteForce(j, o)
		got, err := j.Best(context.Background(), o)
		if math.IsInf(want, 1) {
			if !errors.Is(err, ErrNoPlan) {
				t.Fatalf("Best = %+v, %v; want ErrNoPlan", got, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if v := o.value(got.Time, got.Cost); v != want {
			t.Fatalf("Best is worth %v (%+v), another choice %v", v, got, want)
		}
		if got.Gap != 0 {
			t.Fatalf("gap %v of a job that was searched completely", got.Gap)
		}
	})
}
