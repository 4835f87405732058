package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/train/plan"
)

// A setting is one way to run a job whose layers sleep, as steps.py reads it.
type setting struct {
	Layers       []sleeper `json:"layers"`
	Cuts         []int     `json:"cuts"`
	Micro        int       `json:"micro"`
	MicroBatches int       `json:"micro_batches"`
	Steps        int       `json:"steps"`
	// Gradients makes the ranks replicas of one stage that average that many bytes.
	Gradients int `json:"gradients,omitempty"`
	// Replicas and Tensor are degrees of parallelism of pipelines, 0 for 1.
	Replicas int `json:"replicas,omitempty"`
	Tensor   int `json:"tensor,omitempty"`

	ranks int
}

// A sleeper is a layer: seconds and bytes per sample.
type sleeper struct {
	Forward  float64 `json:"forward"`
	Backward float64 `json:"backward"`
	Launch   float64 `json:"launch"`
	Output   int     `json:"output"`
	// Parameters is the size of the parameters in bytes.
	Parameters int `json:"parameters,omitempty"`
}

// sleepers returns layers that sleep; weights are multiples of a millisecond per sample.
func sleepers(weights ...float64) []sleeper {
	list := make([]sleeper, len(weights))
	for i, w := range weights {
		list[i] = sleeper{Forward: w * 1e-3, Backward: 2 * w * 1e-3, Launch: 2e-3, Output: 4096}
	}
	return list
}

// latencies are those of a message between two ranks, and of each step of a collective call among the
// ranks of the machine, in seconds.
type latencies struct{ message, collective float64 }

// alike returns equal latencies.
func alike(seconds float64) latencies { return latencies{seconds, seconds} }

// job returns the planner's job for a setting.
func (s *setting) job(l latencies, bandwidth float64) *plan.Job {
	replicas := max(s.Replicas, 1)
	if s.Gradients > 0 {
		replicas = s.ranks
	}
	j := &plan.Job{
		Batch: replicas * s.Micro * s.MicroBatches, MicroBatches: []int{s.Micro}, Replicas: []int{replicas},
		Devices: []plan.Device{{
			Name: "core", Speed: 1, Memory: 1e12, Bandwidth: bandwidth, Latency: l.message,
			Node: s.ranks, NodeBandwidth: bandwidth, NodeLatency: l.collective,
		}},
	}
	for i, l := range s.Layers {
		layer := plan.Layer{
			Output: float64(l.Output), Forward: l.Forward, Backward: l.Backward, Launch: l.Launch, Parameters: float64(l.Parameters),
		}
		if s.Tensor > 1 {
			layer.Operators = l.operators()
		}
		if i == 0 {
			layer.Parameters = float64(s.Gradients)
		}
		j.Layers = append(j.Layers, layer)
	}
	return j
}

// memoryBandwidth is the bandwidth of shared memory, in bytes per second. The sizes here are small
// compared to it.
const memoryBandwidth = 2e9

// predict returns the planned time of a step in seconds, by its schedule.
func (s *setting) predict(l latencies) (float64, error) {
	j := s.job(l, memoryBandwidth)
	if err := j.Check(); err != nil {
		return 0, err
	}
	c := plan.Choice{Replicas: j.Replicas[0], MicroBatch: s.Micro, Tensor: s.Tensor}
	first := 0
	for _, end := range append(append([]int(nil), s.Cuts...), len(s.Layers)) {
		c.Stages = append(c.Stages, plan.Stage{First: first, End: end})
		first = end
	}
	p, err := j.Evaluate(c)
	return p.Scheduled, err
}

// measure returns the median time of a step of each setting, all of which have the same ranks.
func (b *bench) measure(ctx context.Context, settings []setting) ([]float64, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	list, err := b.train(ctx, settings[0].ranks, "steps.py", string(text))
	if err != nil {
		return nil, err
	}
	var medians []float64
	for _, r := range list {
		var timed struct {
			Seconds []float64 `json:"seconds"`
		}
		if err := json.Unmarshal(r.text, &timed); err != nil {
			return nil, err
		}
		medians = append(medians, paired.Median(timed.Seconds))
	}
	if len(medians) != len(settings) {
		return nil, fmt.Errorf("%d results of %d settings", len(medians), len(settings))
	}
	return medians, nil
}

// stepSettings returns settings of pipelines and of replicas, for that many ranks. The first
// setting of each kind calibrates.
func stepSettings(ranks, steps int) (pipelines, replicas []setting) {
	weights := [][]float64{{2, 2, 2, 2, 2, 2, 2, 2}, {1, 3, 2, 4, 1, 2, 3, 1}, {5, 1, 1, 1, 2, 1, 1, 4}}
	for i, w := range weights {
		for _, micros := range []int{1, 4, 8} {
			s := setting{Layers: sleepers(w...), Micro: 2, MicroBatches: micros, Steps: steps, ranks: ranks}
			for k := 1; k < ranks; k++ {
				s.Cuts = append(s.Cuts, k*len(w)/ranks)
			}
			if i == 1 {
				s.Cuts[0]++ // Not only equal cuts.
			}
			pipelines = append(pipelines, s)
			r := setting{Layers: sleepers(w[:4]...), Micro: i + 1, MicroBatches: micros, Steps: steps, Gradients: (i + 1) << 20, ranks: ranks}
			replicas = append(replicas, r)
		}
	}
	return pipelines, replicas
}

// steps compares the planned times of steps with measured ones.
func (b *bench) steps(ctx context.Context) error {
	var wrong []float64
	for _, ranks := range []int{2, 4} {
		pipelines, replicas := stepSettings(ranks, b.Rounds(7, 2))
		for _, settings := range [][]setting{pipelines, replicas} {
			errors, err := b.compareSteps(ctx, settings)
			if err != nil {
				return err
			}
			wrong = append(wrong, errors...)
		}
	}
	b.Row(paired.NewRow("planned against measured time of a step, pipelines and replicas: error (median of settings that did not calibrate)",
		"%", "", wrong, nil, paired.Goal{Max: 5}))
	return nil
}

// compareSteps measures settings, calibrates the latency of a message by the first setting, and
// returns the errors of the others in per cent.
func (b *bench) compareSteps(ctx context.Context, settings []setting) ([]float64, error) {
	measured, err := b.measure(ctx, settings)
	if err != nil {
		return nil, err
	}
	latency, err := settings[0].calibrate(measured[0], alike)
	if err != nil {
		return nil, err
	}
	var wrong []float64
	for i := 1; i < len(settings); i++ {
		planned, err := settings[i].predict(alike(latency))
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, 100*math.Abs(planned-measured[i])/measured[i])
	}
	return wrong, nil
}

// calibrate returns the latency with which a setting takes as long as measured. The time is a linear
// function of latencies for which the planner would not divide the layers in another way.
func (s *setting) calibrate(measured float64, of func(latency float64) latencies) (float64, error) {
	const step = 1e-4
	without, err := s.predict(of(0))
	if err != nil {
		return 0, err
	}
	with, err := s.predict(of(step))
	if err != nil {
		return 0, err
	}
	return max(0, step*(measured-without)/(with-without)), nil
}

// accumulation compares a step whose micro-batches are accumulated on small devices with a step
// whose samples are computed at once on large devices.
func (b *bench) accumulation(ctx context.Context) error {
	const ranks, samples = 2, 16
	var settings []setting
	for _, micros := range []int{1, 2, 4, 8} {
		settings = append(settings, setting{
			Layers: sleepers(2, 3, 2, 1), Micro: samples / micros, MicroBatches: micros, Steps: b.Rounds(7, 2), Gradients: 1 << 20, ranks: ranks,
		})
	}
	measured, err := b.measure(ctx, settings)
	if err != nil {
		return err
	}
	// A device's price follows its memory: that of the parameters, and of the samples at once.
	price := func(s *setting) float64 { return 1 + float64(s.Micro)/4 }
	best, planned := 0, 0
	var plannedCost [4]float64
	for i := range settings {
		seconds, err := settings[i].predict(alike(0.5e-3))
		if err != nil {
			return err
		}
		plannedCost[i] = seconds * price(&settings[i])
		if plannedCost[i] < plannedCost[planned] {
			planned = i
		}
		if measured[i]*price(&settings[i]) < measured[best]*price(&settings[best]) {
			best = i
		}
	}
	cost := measured[best] * price(&settings[best])
	none := measured[0] * price(&settings[0])
	b.Row(paired.NewRow(fmt.Sprintf("gradient accumulation (%d micro-batches) against none: cost of a step", settings[best].MicroBatches),
		"device-seconds", "none", []float64{cost}, []float64{none}, paired.Goal{MaxRatio: 0.99}))
	b.Row(paired.NewRow("the same: time of a step", "s", "none", []float64{measured[best]}, []float64{measured[0]}, paired.Goal{MinRatio: 1}))
	b.Row(paired.NewRow("the planner's number of micro-batches: measured cost against that of the measured best", "device-seconds", "best",
		[]float64{measured[planned] * price(&settings[planned])}, []float64{cost}, paired.Goal{MaxRatio: 1.001}))
	return nil
}
