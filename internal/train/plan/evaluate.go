package plan

import (
	"fmt"
	"slices"
)

// A Choice is one way to run a job: the decisions of the planner.
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

// A Plan is a choice with its predicted time, cost and memory. Times are those of a step, in
// seconds.
type Plan struct {
	Choice
	// Steps is the number of micro-batches that each replica accumulates in one step.
	Steps int     `json:"microBatches"`
	Time  float64 `json:"time"`
	// Scheduled is the expected time of a step, by the order of the schedule. The search minimises
	// Time, which is GPipe's: for 1F1B with unequal stages it is a bound.
	Scheduled float64 `json:"scheduled"`
	// Cost is in the unit of the devices' prices.
	Cost float64 `json:"cost"`
	// Gap is the share of this plan's time or cost by which a better plan may still lie below it: 0
	// if the search has excluded better plans.
	Gap float64 `json:"gap"`
	// Forward is the time until the last stage has the last micro-batch's output.
	Forward float64 `json:"forward"`
	// Memory is the most that each stage holds, in bytes.
	Memory []float64 `json:"memory"`
	// Sync is the time in which each stage's replicas sum their gradients.
	Sync []float64 `json:"sync"`
	// Sharding lists the layers whose operators are divided, with Tensor devices.
	Sharding []LayerSharding `json:"sharding,omitempty"`
}

// Evaluate returns the plan of a choice, or an error if the choice can't run. The job must have
// been checked.
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
