package main

import (
	"context"
	"fmt"
	"math"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/train/plan"
	"github.com/outboard-run/outboard/internal/train/plan/published"
	"github.com/outboard-run/outboard/internal/train/shard"
)

// joint compares plans of data, tensor and pipeline degrees that are chosen together with the best
// single kind of parallelism, for models and clusters of published papers.
func (b *bench) joint(ctx context.Context) error {
	for _, c := range []struct {
		cluster published.Cluster
		models  []published.Model
	}{
		{published.P3(), published.Alpa()},
		{published.Selene(), published.Megatron()},
	} {
		for i, m := range c.models {
			if b.Rounds(2, 1) == 1 && i > 0 {
				continue
			}
			if err := b.compareJoint(ctx, c.cluster, m); err != nil {
				return err
			}
		}
	}
	b.note("Published clusters: see `internal/train/plan/published` for the papers and for what they do not say (matrix products at half of the peak, " +
		"latencies). A single kind of parallelism may use fewer devices than there are, where the model does not divide into more.")
	return nil
}

// compareJoint adds the row of one model.
func (b *bench) compareJoint(ctx context.Context, c published.Cluster, m published.Model) error {
	j := c.Job(m)
	best, err := j.Best(ctx, plan.Objective{})
	if err != nil {
		return err
	}
	least, kind := math.Inf(1), ""
	for _, single := range []struct {
		name string
		plan func() (plan.Plan, error)
	}{
		{"data", func() (plan.Plan, error) { return j.DataParallel(plan.Objective{}) }},
		{"tensor", func() (plan.Plan, error) { return j.TensorParallel(plan.Objective{}) }},
		{"pipeline", func() (plan.Plan, error) { return j.Pipeline(ctx, plan.Objective{}) }},
	} {
		p, err := single.plan()
		if err != nil {
			b.note(fmt.Sprintf("%s: no plan of %s parallelism alone: %v.", m.Name, single.name, err))
		} else if p.Time < least {
			least, kind = p.Time, fmt.Sprintf("%s (%s)", single.name, degrees(&p))
		}
	}
	name := fmt.Sprintf("%s on %d devices of %s: planned speed of joint degrees against the best single kind", m.Name, m.Devices, c.Name)
	if math.IsInf(least, 1) {
		b.note(name + ": no single kind fits the devices' memory.")
		return nil
	}
	b.Row(paired.NewRow(name, "steps/s", kind, []float64{1 / best.Time}, []float64{1 / least}, paired.Goal{MinRatio: 1.2}))
	b.note(fmt.Sprintf("%s on %s: %s, %.3g s a step; the best single kind is %s, %.3g s.", m.Name, c.Name, degrees(&best), best.Time, kind, least))
	return nil
}

func degrees(p *plan.Plan) string {
	return fmt.Sprintf("data %d, tensor %d, pipeline %d, micro-batches of %d", p.Replicas, max(p.Tensor, 1), len(p.Stages), p.MicroBatch)
}

// A degree is one way to divide four ranks.
type degree struct{ replicas, tensor, stages int }

// order compares the order of plans of all degrees of parallelism by their planned time with the
// order by their measured time, for layers that sleep.
func (b *bench) order(ctx context.Context) error {
	var wrong, pairs int
	for _, weights := range [][]float64{{4, 4, 4, 4, 4, 4, 4, 4}, {12, 1, 1, 2, 1, 1, 2, 4}} {
		for _, batch := range []int{4, 16} {
			w, n, err := b.compareOrder(ctx, weights, batch)
			if err != nil {
				return err
			}
			wrong, pairs = wrong+w, pairs+n
		}
	}
	b.None(fmt.Sprintf("data, tensor and pipeline degrees on four ranks: pairs of plans (of %d that differ by 10 %% as planned) in another order when measured", pairs),
		"pairs", float64(wrong))
	return nil
}

// compareOrder returns the number of pairs of plans, and how many of them are in another order when
// measured.
func (b *bench) compareOrder(ctx context.Context, weights []float64, batch int) (wrong, pairs int, err error) {
	const ranks = 4
	var settings []setting
	for _, d := range []degree{{1, 1, 4}, {4, 1, 1}, {1, 4, 1}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}} {
		s := setting{
			Layers: sleepers(weights...), Micro: 1, MicroBatches: batch / d.replicas, Steps: b.Rounds(5, 2),
			Replicas: d.replicas, Tensor: d.tensor, ranks: ranks,
		}
		for i := range s.Layers {
			s.Layers[i].Parameters = 1 << 20
		}
		for k := 1; k < d.stages; k++ {
			s.Cuts = append(s.Cuts, k*len(weights)/d.stages)
		}
		settings = append(settings, s)
	}
	measured, err := b.measure(ctx, settings)
	if err != nil {
		return 0, 0, err
	}
	l, err := calibrateLatencies(settings, measured)
	if err != nil {
		return 0, 0, err
	}
	planned := make([]float64, len(settings))
	for i := range settings {
		if planned[i], err = settings[i].predict(l); err != nil {
			return 0, 0, err
		}
	}
	for i := range settings {
		for k := range settings {
			if planned[k] < 1.1*planned[i] {
				continue
			}
			pairs++
			if measured[k] < measured[i] {
				wrong++
				b.note(fmt.Sprintf("Batches of %d, layers of %v ms: %s and %s are planned to take %.3g and %.3g s, and take %.3g and %.3g s.",
					batch, weights, settings[i].degrees(), settings[k].degrees(), planned[i], planned[k], measured[i], measured[k]))
			}
		}
	}
	return wrong, pairs, nil
}

// calibrateLatencies returns the latency of messages by the first setting, a pipeline, and that of
// collective calls by the fourth, which divides layers between two ranks: ranks of a machine make
// these calls in its memory.
func calibrateLatencies(settings []setting, measured []float64) (l latencies, err error) {
	if l.message, err = settings[0].calibrate(measured[0], func(s float64) latencies { return latencies{message: s} }); err != nil {
		return l, err
	}
	l.collective, err = settings[3].calibrate(measured[3], func(s float64) latencies { return latencies{l.message, s} })
	return l, err
}

func (s *setting) degrees() string {
	return fmt.Sprintf("data %d, tensor %d, pipeline %d", s.Replicas, s.Tensor, len(s.Cuts)+1)
}

// operators returns the operators of a sleeping layer for the planner: two matrices, each half of
// the work.
func (l *sleeper) operators() []shard.Operator {
	half := func(name string) shard.Operator {
		return shard.Operator{
			Name: name, Kind: shard.Linear, Output: []int{l.Output / 4}, Parameters: float64(l.Parameters) / 2,
			Forward: l.Forward / 2, Backward: l.Backward / 2,
		}
	}
	return []shard.Operator{half("up"), half("down")}
}
