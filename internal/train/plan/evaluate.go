package plan

import (
	"fmt"
)

// A Choice is one way to run a job: what the planner decides.
type Choice struct {
	Stages     []Stage `json:"stages"`
	Replicas   int     `json:"replicas"`
	MicroBatch int     `json:"microBatch"`
	Recompute  bool    `json:"recompute,omitempty"`
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
}

// Evaluate returns what the choice takes, or why it can't run. The job must have been checked.
func (j *Job) Evaluate(c Choice) (Plan, error) {
	div, err := j.divide(c)
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
		p.Memory[i] = t.memory(st.First, st.End, s.stages+1)
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
	p.Cost = t.cost(s)
	return p, nil
}

// divide returns how the choice divides the batch.
func (j *Job) divide(c Choice) (division, error) {
	if c.Replicas < 1 || c.MicroBatch < 1 || c.Replicas > j.Batch || c.MicroBatch > j.Batch || j.Batch%(c.Replicas*c.MicroBatch) != 0 {
		return division{}, fmt.Errorf("%d samples are no whole number of micro-batches of %d on %d replicas", j.Batch, c.MicroBatch, c.Replicas)
	}
	return division{c.Replicas, c.MicroBatch, j.Batch / (c.Replicas * c.MicroBatch)}, nil
}

// short returns the first kind of device of which the choice needs more than there are, and how
// many it needs; -1 if there are enough.
func (j *Job) short(c Choice) (kind, need int) {
	var used [MaxDevices]int
	for _, s := range c.Stages {
		used[s.Device] += c.Replicas
	}
	for k, d := range j.Devices {
		if d.Count > 0 && used[k] > d.Count {
			return k, used[k]
		}
	}
	return -1, 0
}
