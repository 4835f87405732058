// Package plan chooses how a training step is divided over devices: contiguous cuts of the layers
// into stages, a kind of device for each stage, replicas of the pipeline, devices that divide the
// operators of a stage (tensor parallelism) and the size of micro-batches. It is pure: it neither
// measures nor starts anything.
//
// The model of a step's time is that of FuncPipe (POMACS 2022, arXiv 2204.13561, section 3.4);
// docs/design/0013-training.md has the formula and its simplifications.
package plan

import (
	"errors"
	"fmt"

	"github.com/outboard-run/outboard/internal/train/shard"
)

// MaxLayers is the largest number of layers that the search cuts between. A job with more is merged
// first (see Merge), as FuncPipe does.
const MaxLayers = 30

// MaxDevices bounds the kinds of device of a job.
const MaxDevices = 16

// A Layer is a part of the model that is never cut. Times are those measured on a device of
// speed 1, in seconds; sizes are bytes.
type Layer struct {
	Name string `json:"name" yaml:"name"`
	// Parameters is the size of the parameters.
	Parameters float64 `json:"parameters" yaml:"parameters"`
	// Output is the size of the next layer's input, per sample; the returning gradient has the same
	// size.
	Output float64 `json:"output" yaml:"output"`
	// Stored is the size of the data kept in memory from the forward to the backward pass, per
	// sample.
	Stored float64 `json:"stored" yaml:"stored"`
	// Forward and Backward are the times of the two passes, per sample.
	Forward  float64 `json:"forward" yaml:"forward"`
	Backward float64 `json:"backward" yaml:"backward"`
	// Launch is the time that each of the two passes takes per micro-batch, whatever its size.
	Launch float64 `json:"launch,omitempty" yaml:"launch,omitempty"`
	// Operators are the operators of the layer, for tensor parallelism; the result of the last one
	// is the layer's output. The other members are their sums if none is set.
	Operators []shard.Operator `json:"operators,omitempty" yaml:"operators,omitempty"`
	// Parts are the layers that Merge joined into this one, if any of them has operators.
	Parts []Layer `json:"-" yaml:"-"`
}

// A Device is a kind of device, or one memory size of a function, that stages may run on.
type Device struct {
	Name string `json:"name" yaml:"name"`
	// Speed divides the times of layers.
	Speed float64 `json:"speed" yaml:"speed"`
	// Memory is in bytes.
	Memory float64 `json:"memory" yaml:"memory"`
	// Bandwidth is the bandwidth of the device's link in each direction, in bytes per second.
	Bandwidth float64 `json:"bandwidth" yaml:"bandwidth"`
	// Latency is the latency of a message over the link, in seconds.
	Latency float64 `json:"latency,omitempty" yaml:"latency,omitempty"`
	// Price is per second and device.
	Price float64 `json:"price,omitempty" yaml:"price,omitempty"`
	// Count is the number of devices, 0 if it is unlimited.
	Count int `json:"count,omitempty" yaml:"count,omitempty"`
	// Node is the number of devices of one node, which NodeBandwidth and NodeLatency link among
	// each other; 0 if all links are alike. Bandwidth is then a device's share of its node's link
	// to others.
	Node          int     `json:"node,omitempty" yaml:"node,omitempty"`
	NodeBandwidth float64 `json:"nodeBandwidth,omitempty" yaml:"nodeBandwidth,omitempty"`
	NodeLatency   float64 `json:"nodeLatency,omitempty" yaml:"nodeLatency,omitempty"`
}

// A Schedule is the order in which a stage passes micro-batches forward and backward.
type Schedule string

// The schedules. They take the same time; they differ in how many micro-batches a stage holds.
const (
	// GPipe passes all micro-batches forward, then all backward: a stage holds all of them.
	GPipe Schedule = "gpipe"
	// OneForwardOneBackward alternates (PipeDream, SOSP 2019): a stage holds as many micro-batches
	// as there are stages from it to the end.
	OneForwardOneBackward Schedule = "1f1b"
)

// A Reduction is the way in which replicas of a stage sum their gradients.
type Reduction string

// The reductions, with their time for s bytes, n replicas and a bandwidth of w.
const (
	// Ring is reduce-scatter and all-gather between the replicas: 2(1-1/n)s/w.
	Ring Reduction = "ring"
	// Store is FuncPipe's pipelined scatter-reduce through an object store, each of n parts in c
	// pieces: 2s/w (1 - 1/n + 1/(nc)).
	Store Reduction = "store"
	// PlainStore is the scatter-reduce of LambdaML: 3s/w - 2s/(nw).
	PlainStore Reduction = "plain-store"
)

// A Job describes the training step to be planned.
type Job struct {
	Layers  []Layer  `json:"layers" yaml:"layers"`
	Devices []Device `json:"devices" yaml:"devices"`
	// Batch is the samples of one step, over all replicas and micro-batches.
	Batch int `json:"batch" yaml:"batch"`
	// MicroBatches and Replicas are the numbers to choose from; empty for all powers of two
	// that divide Batch, and Batch itself.
	MicroBatches []int `json:"microBatches,omitempty" yaml:"microBatches,omitempty"`
	Replicas     []int `json:"replicas,omitempty" yaml:"replicas,omitempty"`
	// Tensor is the numbers of devices to choose from that divide the operators of one replica of
	// a stage; empty for 1. Element is the bytes of an element of a tensor, 4 if it is 0.
	Tensor  []int   `json:"tensor,omitempty" yaml:"tensor,omitempty"`
	Element float64 `json:"element,omitempty" yaml:"element,omitempty"`
	// Optimizer is the bytes that a device keeps for each byte of parameters beside it:
	// 1 for gradients alone, 3 with Adam.
	Optimizer float64   `json:"optimizer" yaml:"optimizer"`
	Schedule  Schedule  `json:"schedule,omitempty" yaml:"schedule,omitempty"`
	Reduction Reduction `json:"reduction,omitempty" yaml:"reduction,omitempty"`
	// Recompute lets a plan repeat a stage's forward pass instead of storing its activations, if
	// that is better.
	Recompute bool `json:"recompute,omitempty" yaml:"recompute,omitempty"`
	// Stages is the number of stages of the plan, 0 for any. Ranks bounds the devices of all stages,
	// replicas and divided operators together, 0 for no bound.
	Stages int `json:"-" yaml:"-"`
	Ranks  int `json:"-" yaml:"-"`

	// alike and divisionsOfLayers are made by divided. They are valid as long as the job is not
	// changed, and are not for concurrent use.
	alike             []int
	divisionsOfLayers map[dividedKey]*dividedLayer
}

// Check returns an error, with the name of the field, if the job can't be planned. It sets the
// defaults of empty fields.
func (j *Job) Check() error {
	if j.Schedule == "" {
		j.Schedule = OneForwardOneBackward
	}
	if j.Reduction == "" {
		j.Reduction = Ring
	}
	if j.Element == 0 {
		j.Element = 4
	}
	j.alike, j.divisionsOfLayers = nil, nil
	return errors.Join(j.checkTensor(), j.checkLayers(), j.checkDevices(), j.checkChoices())
}

func (j *Job) checkLayers() error {
	if len(j.Layers) == 0 {
		return errors.New("layers: there are none")
	}
	for i, l := range j.Layers {
		for name, v := range map[string]float64{
			"parameters": l.Parameters, "output": l.Output, "stored": l.Stored,
			"forward": l.Forward, "backward": l.Backward, "launch": l.Launch,
		} {
			if !(v >= 0 && v <= maxNumber) {
				return fmt.Errorf("layers[%d] (%s): %s is %v, want a number from 0 to %g", i, l.Name, name, v, maxNumber)
			}
		}
	}
	return nil
}

// maxNumber bounds the numbers of a job, so that their sums and products stay finite.
const maxNumber = 1e30

// maxCount bounds the devices of one kind.
const maxCount = 1 << 30

func (j *Job) checkDevices() error {
	if n := len(j.Devices); n == 0 || n > MaxDevices {
		return fmt.Errorf("devices: there are %d kinds, want 1 to %d", n, MaxDevices)
	}
	for i, d := range j.Devices {
		for name, v := range map[string]float64{"speed": d.Speed, "memory": d.Memory, "bandwidth": d.Bandwidth} {
			if !(v > 0 && v <= maxNumber) {
				return fmt.Errorf("devices[%d] (%s): %s is %v, want more than 0", i, d.Name, name, v)
			}
		}
		if !(d.Price >= 0 && d.Price <= maxNumber && d.Latency >= 0 && d.Latency <= maxNumber) {
			return fmt.Errorf("devices[%d] (%s): price and latency must be from 0 to %g", i, d.Name, maxNumber)
		}
		if d.Count < 0 || d.Count > maxCount {
			return fmt.Errorf("devices[%d] (%s): count is %d, want 0 to %d", i, d.Name, d.Count, maxCount)
		}
		if err := d.checkNode(); err != nil {
			return fmt.Errorf("devices[%d] (%s): %w", i, d.Name, err)
		}
	}
	return nil
}

func (j *Job) checkChoices() error {
	if j.Batch < 1 || j.Batch > 1<<30 {
		return fmt.Errorf("batch: %d samples, want 1 to 2^30", j.Batch)
	}
	if !(j.Optimizer >= 0 && j.Optimizer <= 1000) {
		return fmt.Errorf("optimizer: %v bytes for each byte of parameters, want 0 to 1000", j.Optimizer)
	}
	if j.Schedule != GPipe && j.Schedule != OneForwardOneBackward {
		return fmt.Errorf("schedule: %q, want %q or %q", j.Schedule, GPipe, OneForwardOneBackward)
	}
	if j.Reduction != Ring && j.Reduction != Store && j.Reduction != PlainStore {
		return fmt.Errorf("reduction: %q, want %q, %q or %q", j.Reduction, Ring, Store, PlainStore)
	}
	if j.Stages < 0 || j.Stages > len(j.Layers) {
		return fmt.Errorf("stages: %d of %d layers, want at least one layer in each", j.Stages, len(j.Layers))
	}
	if len(j.divisions()) == 0 {
		return fmt.Errorf("batch: %d samples are no whole number of micro-batches of %v on %v replicas", j.Batch, j.MicroBatches, j.Replicas)
	}
	return nil
}

// A division is one way to divide the batch: replicas * micro * steps == Batch. tensor is the
// devices of a replica of a stage, weight how they save memory: one of memoryWeights.
type division struct{ replicas, micro, steps, tensor, weight int }

// divisions returns the ways in which the job's choices divide the batch.
func (j *Job) divisions() []division {
	replicas, micros := j.Replicas, j.MicroBatches
	if len(replicas) == 0 {
		replicas = divisors(j.Batch)
	}
	if len(micros) == 0 {
		micros = divisors(j.Batch)
	}
	var all []division
	for _, r := range replicas {
		for _, m := range micros {
			if r > 0 && m > 0 && r <= j.Batch && m <= j.Batch/r && j.Batch%(r*m) == 0 {
				all = append(all, j.tensorDivisions(division{r, m, j.Batch / (r * m), 1, 0})...)
			}
		}
	}
	return all
}

// tensorDivisions returns a division with each number of devices for its operators.
func (j *Job) tensorDivisions(d division) (all []division) {
	tensor := j.Tensor
	if len(tensor) == 0 {
		tensor = []int{1}
	}
	for _, d.tensor = range tensor {
		for _, d.weight = range memoryWeights {
			if d.weight > 0 && d.tensor == 1 {
				break
			}
			all = append(all, d)
		}
	}
	return all
}

// divisors returns the powers of two that divide n, and n itself.
func divisors(n int) []int {
	var all []int
	for p := 1; p <= n && n%p == 0; p *= 2 {
		all = append(all, p)
	}
	if all[len(all)-1] != n {
		all = append(all, n)
	}
	return all
}
