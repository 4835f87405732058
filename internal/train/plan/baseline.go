package plan

import "math"

// DataParallel returns the best plan of a single stage: what one gets without pipelines.
func (j *Job) DataParallel(o Objective) (Plan, error) {
	return j.bestOf(o, func(d division, device int) Choice { return j.equal(1, d, device) })
}

// EqualCuts returns the best plan with stages of the same number of layers, all on one kind of
// device: what is chosen by hand.
func (j *Job) EqualCuts(o Objective, stages int) (Plan, error) {
	return j.bestOf(o, func(d division, device int) Choice { return j.equal(min(stages, len(j.Layers)), d, device) })
}

// bestOf returns the best of the choices that are made for each division and kind of device.
func (j *Job) bestOf(o Objective, choose func(division, int) Choice) (Plan, error) {
	if err := j.Check(); err != nil {
		return Plan{}, err
	}
	var best Plan
	least := math.Inf(1)
	for _, d := range j.divisions() {
		for device := range j.Devices {
			p, err := j.Evaluate(choose(d, device))
			if err != nil {
				continue // It doesn't fit; another one may.
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
	c := Choice{Replicas: d.replicas, MicroBatch: d.micro}
	for i := range stages {
		c.Stages = append(c.Stages, Stage{First: i * len(j.Layers) / stages, End: (i + 1) * len(j.Layers) / stages, Device: device})
	}
	return c
}
