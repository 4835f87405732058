package plan

import (
	"context"
	"math"
)

// DataParallel returns the best plan of a single stage: the result without pipelines.
func (j *Job) DataParallel(o Objective) (Plan, error) {
	return j.undivided().bestOf(o, func(d division, device int) (Choice, bool) { return j.equal(1, d, device), true })
}

// EqualCuts returns the best plan with stages of the same number of layers, all on one kind of
// device: the choice made by hand.
func (j *Job) EqualCuts(o Objective, stages int) (Plan, error) {
	return j.undivided().bestOf(o, func(d division, device int) (Choice, bool) {
		return j.equal(min(stages, len(j.Layers)), d, device), true
	})
}

// bestOf returns the best plan of the choices that choose returns, and allows, for each division
// and kind of device.
func (j *Job) bestOf(o Objective, choose func(division, int) (Choice, bool)) (Plan, error) {
	if err := j.Check(); err != nil {
		return Plan{}, err
	}
	var best Plan
	least := math.Inf(1)
	for _, d := range j.divisions() {
		for device := range j.Devices {
			c, ok := choose(d, device)
			if !ok {
				continue
			}
			p, err := j.Evaluate(c)
			if err != nil {
				continue // It doesn't fit; another choice may.
			}
			if v := o.value(p.Time, p.Cost); v < least {
				best, least = p, v
			}
		}
	}
	if math.IsInf(least, 1) {
		return Plan{}, ErrNoPlan
	}
	return best, nil
}

func (j *Job) equal(stages int, d division, device int) Choice {
	c := d.choice()
	for i := range stages {
		c.Stages = append(c.Stages, Stage{First: i * len(j.Layers) / stages, End: (i + 1) * len(j.Layers) / stages, Device: device})
	}
	return c
}

// undivided returns the job without tensor parallelism.
func (j *Job) undivided() *Job {
	whole := *j
	whole.Tensor = nil
	return &whole
}

// choice returns a choice without stages.
func (d division) choice() Choice {
	c := Choice{Replicas: d.replicas, MicroBatch: d.micro, MemoryWeight: d.weight}
	if d.tensor > 1 {
		c.Tensor = d.tensor
	}
	return c
}

// Pipeline returns the best plan of stages without replicas, each on one device.
func (j *Job) Pipeline(ctx context.Context, o Objective) (Plan, error) {
	alone := j.undivided()
	alone.Replicas = []int{1}
	return alone.Best(ctx, o)
}

// TensorParallel returns the best plan of a single stage without replicas, whose operators are
// divided over all of its devices.
func (j *Job) TensorParallel(o Objective) (Plan, error) {
	return j.bestOf(o, func(d division, device int) (Choice, bool) {
		return j.equal(1, d, device), d.replicas == 1 && d.tensor > 1
	})
}
