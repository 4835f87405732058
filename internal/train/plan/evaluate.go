package plan

import (
	"fmt"
	"slices"
)

// A Choice is one way to run a job: what the planner decides.
type Choice struct {
	Stages     []Stage `json:"stages"`
	Replicas   int     `json:"replicas"`
	MicroBatch int     `json:"microBatch"`
	Recompute  bool    `json:"recompute,omitempty"`
	// Tensor is the devices of each replica of a stage, 0 for one. MemoryWeight says how much
	// longer a step may take for the memory that they save: one of 0, 1 and 100.
	Tensor       int `json:"tensor,omitempty"`
	MemoryWeight int `json:"memoryWeight,omitempty"`
}

// A Stage is the layers First to End-1 on a device: an index of Job.Devices.
type Stage struct {
	First  int `json:"first"`
	End    int `json:"end"`
	Device int `json:"device"`
}

// A Plan is a choice with what it is predicted to take. Times are seconds and a step.
type Plan struct {
	Choice
	// Steps is the micro-batches that each replica accumulates in one step.
	Steps int     `json:"microBatches"`
	Time  float64 `json:"time"`
	// Scheduled is the time by the order of the schedule, which is what a step is expected to take.
	// The search minimises Time, which is GPipe's: of 1F1B with unequal stages it is a bound.
	Scheduled float64 `json:"scheduled"`
	// Cost is in the unit of the devices' prices.
	Cost float64 `json:"cost"`
	// Gap is by how much of this plan's time or cost a better one may still lie below it: 0 where
	// the search has excluded that there is a better one.
	Gap float64 `json:"gap"`
	// Forward is the time until the last stage has the last micro-batch's output.
	Forward float64 `json:"forward"`
	// Memory is what each stage holds at most, in bytes.
	Memory []float64 `json:"memory"`
	// Sync is the time in which each stage's replicas sum their gradients.
	Sync []float64 `json:"sync"`
	// Sharding has the layers whose operators are divided, with Tensor devices.
	Sharding []LayerSharding `json:"sharding,omitempty"`
}

// Evaluate returns what the choice takes, or why it can't run. The job must have been checked.
func (j *Job) Evaluate(c Choice) (Plan, error) {
	div, err := j.division(c)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Choice: c, Steps: div.steps, Memory: make([]float64, len(c.Stages)), Sync: make([]float64, len(c.Stages))}
	t := newTables(j, div, c.Recompute)
	s := suffix{at: len(j.Layers), device: -1}
	for i := len(c.Stages) - 1; i >= 0; i-- {
		st := c.Stages[i]
		if st.End != s.at || st.First >= st.End || st.First < 0 || st.Device < 0 || st.Device >= len(j.Devices) {
			return Plan{}, fmt.Errorf("stage %d: layers %d to %d on device %d do not continue the others", i, st.First, st.End, st.Device)
		}
		p.Memory[i] = t.memory(st.First, st.End, s.stages+1, st.Device)
		if p.Memory[i] > j.Devices[st.Device].Memory {
			return Plan{}, fmt.Errorf("stage %d needs %.0f bytes, %s has %.0f", i, p.Memory[i], j.Devices[st.Device].Name, j.Devices[st.Device].Memory)
		}
		p.Sync[i] = t.sync(st.First, st.End, st.Device)
		s = t.prepend(s, st.First, st.Device)
	}
	if s.at != 0 {
		return Plan{}, fmt.Errorf("layers 0 to %d are in no stage", s.at)
	}
	if k, need := j.short(c); k >= 0 {
		return Plan{}, fmt.Errorf("the plan needs %d devices of kind %s, there are %d", need, j.Devices[k].Name, j.Devices[k].Count)
	}
	p.Time, p.Forward = t.time(s), t.forwardTime(s)
	p.Scheduled = t.scheduled(c.Stages, p.Time)
	p.Cost = t.cost(s)
	p.Sharding = t.sharding(c.Stages)
	return p, nil
}

// division returns how the choice divides the batch.
func (j *Job) division(c Choice) (division, error) {
	if c.Replicas < 1 || c.MicroBatch < 1 || c.Replicas > j.Batch || c.MicroBatch > j.Batch || j.Batch%(c.Replicas*c.MicroBatch) != 0 {
		return division{}, fmt.Errorf("%d samples are no whole number of micro-batches of %d on %d replicas", j.Batch, c.MicroBatch, c.Replicas)
	}
	if c.Tensor < 0 || c.Tensor > maxTensor || !slices.Contains(memoryWeights, c.MemoryWeight) {
		return division{}, fmt.Errorf("%d devices of a replica of a stage, weight %d of memory", c.Tensor, c.MemoryWeight)
	}
	return division{c.Replicas, c.MicroBatch, j.Batch / (c.Replicas * c.MicroBatch), max(c.Tensor, 1), c.MemoryWeight}, nil
}

// short returns the first kind of device of which the choice needs more than there are, and how
// many it needs; -1 if there are enough.
func (j *Job) short(c Choice) (kind, need int) {
	var used [MaxDevices]int
	for _, s := range c.Stages {
		used[s.Device] += c.Replicas * max(c.Tensor, 1)
	}
	for k, d := range j.Devices {
		if d.Count > 0 && used[k] > d.Count {
			return k, used[k]
		}
	}
	return -1, 0
}

// sharding returns how the operators of the stages' layers are divided.
func (t *tables) sharding(stages []Stage) (all []LayerSharding) {
	if t.div.tensor == 1 {
		return nil
	}
	for _, s := range stages {
		for layer := s.First; layer < s.End; layer++ {
			all = append(all, t.job.shardingOf(layer, t.div, s.Device)...)
		}
	}
	return all
}
