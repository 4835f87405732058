package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outboard-run/outboard"
)

// reason returns why no plan fits, and the remedy.
func (j *Job) reason(o Objective) string {
	if !slices.ContainsFunc(j.divisions(), func(d division) bool { return j.mostStages(d) >= max(j.Stages, 1) }) {
		return fmt.Sprintf("the job has %d ranks, fewer than its %d stage(s), replicas (%v) and divided operators (%v) need: take more ranks or smaller degrees",
			j.Ranks, max(j.Stages, 1), j.Replicas, j.Tensor)
	}
	most := slices.MaxFunc(j.Devices, func(a, b Device) int { return cmp.Compare(a.Memory, b.Memory) })
	has := fmt.Sprintf("the largest device (%s) has %v", most.Name, outboard.Bytes(most.Memory))
	layer, need, d := j.leastMemory()
	switch {
	case need > most.Memory:
		return fmt.Sprintf("layer %d (%s) needs %v on a device at least, with micro-batches of %d and its operators divided by %d; %s: "+
			"take devices with more, allow smaller micro-batches or more devices in tensor, or name the layer's operators",
			layer, j.Layers[layer].Name, outboard.Bytes(need), d.micro, d.tensor, has)
	case o.MaxTime > 0 || o.MaxCost > 0:
		return "within the bounds of time and cost; plan without them to see what is possible"
	default:
		return fmt.Sprintf("the stages need more memory or devices than there are, though each layer fits a device with %v; %s: "+
			"allow more devices, fewer replicas or recompute", outboard.Bytes(need), has)
	}
}

// leastMemory returns the layer that needs the most bytes of a device, with the division of the
// batch for which that is least: a stage of that layer alone, with one micro-batch.
func (j *Job) leastMemory() (layer int, need float64, least division) {
	for _, d := range j.divisions() {
		t := newTables(j, d, false)
		at, most := 0, 0.0
		for i := range j.Layers {
			smallest := t.memory(i, i+1, 1, 0)
			for device := range j.Devices {
				smallest = min(smallest, t.memory(i, i+1, 1, device))
			}
			if smallest > most {
				at, most = i, smallest
			}
		}
		if least == (division{}) || most < need {
			layer, need, least = at, most, d
		}
	}
	return layer, need, least
}
