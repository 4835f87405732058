package plan

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/train/shard"
)

// divisible returns a layer of two matrices, whose widths are divided by 2 and 4.
func divisible(parameters, forward float64) Layer {
	matrix := func(name string, kind shard.Kind, out int) shard.Operator {
		return shard.Operator{
			Name: name, Kind: kind, Output: []int{out}, Parameters: parameters / 2, Stored: 2, Forward: forward / 2, Backward: forward,
		}
	}
	return Layer{Name: "l", Operators: []shard.Operator{matrix("up", shard.Linear, 8), matrix("down", shard.Linear, 4)}}
}

func tensorJobs() *rapid.Generator[*Job] {
	return rapid.Custom(func(t *rapid.T) *Job {
		j := jobs().Draw(t, "job")
		j.Layers = j.Layers[:min(len(j.Layers), 3)]
		for i := range j.Layers {
			if rapid.Bool().Draw(t, "divisible") {
				j.Layers[i] = divisible(number(0, 9).Draw(t, "parameters"), number(0, 9).Draw(t, "forward"))
			}
		}
		j.Tensor = rapid.SampledFrom([][]int{{1, 2}, {2}, {1, 2, 4}}).Draw(t, "tensor")
		for i := range j.Devices {
			d := &j.Devices[i]
			d.Node, d.NodeBandwidth = rapid.SampledFrom([]int{0, 2, 4}).Draw(t, "node"), number(5, 50).Draw(t, "node's bandwidth")
		}
		return j
	})
}

// The joint search over degrees of data, tensor and pipeline parallelism finds the best of all
// choices.
func TestJointSearchIsTheBestOfAllChoices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := tensorJobs().Draw(t, "job")
		o := Objective{Cheapest: rapid.Bool().Draw(t, "cheapest")}
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		want := math.Inf(1)
		for _, d := range j.divisions() {
			for _, recompute := range []bool{false, true} {
				if recompute && !j.Recompute {
					continue
				}
				cuts(j, nil, 0, func(stages []Stage) {
					c := d.choice()
					c.Stages, c.Recompute = stages, recompute
					if p, err := j.Evaluate(c); err == nil {
						want = min(want, o.value(p.Time, p.Cost))
					}
				})
			}
		}
		got, err := j.Best(context.Background(), o)
		if math.IsInf(want, 1) {
			if !errors.Is(err, ErrNoPlan) {
				t.Fatalf("Best = %+v, %v; want ErrNoPlan", got, err)
			}
			return
		}
		if v := o.value(got.Time, got.Cost); err != nil || math.Abs(v-want) > 1e-9*(1+want) {
			t.Fatalf("Best is worth %v (%+v, %v), another choice %v", v, got, err, want)
		}
	})
}

// Worked by hand: one layer of two matrices over two devices, columns and then rows.
func TestTensorParallelismByHand(t *testing.T) {
	j := &Job{
		Layers:  []Layer{{Name: "first", Operators: []shard.Operator{{Name: "up0", Kind: shard.Opaque, Output: []int{4}}}}, divisible(80, 16)},
		Devices: []Device{{Name: "d", Speed: 2, Memory: 1000, Bandwidth: 1, Node: 2, NodeBandwidth: 8, NodeLatency: 0.25}},
		Batch:   1, Optimizer: 1, Tensor: []int{2},
	}
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := j.Evaluate(Choice{Stages: []Stage{{0, 2, 0}}, Replicas: 1, MicroBatch: 1, Tensor: 2})
	if err != nil {
		t.Fatal(err)
	}
	// 16 s forward at speed 2 on 2 devices, 32 s backward. An all-reduce of 4 elements of 4 bytes
	// takes 2*(1/2)*16/8 + 2*0.25 s, forward behind the rows, backward before the columns.
	forward, backward := 16.0/2/2, 32.0/2/2
	all := 2*0.5*16/8 + 2*0.25
	if want := forward + backward + 2*all; math.Abs(got.Time-want) > 1e-9 {
		t.Errorf("a step takes %v, want %v: %+v", got.Time, want, got)
	}
	want := []LayerSharding{
		{"first", []OperatorSharding{{"up0", "replicated"}}},
		{"l", []OperatorSharding{{"up", "column"}, {"down", "row"}}},
	}
	if d := cmp.Diff(want, got.Sharding, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	// Half of 80 bytes, as many of gradients, and what is stored: the input of the columns whole,
	// that of the rows half.
	if want := 40*2 + 2 + 1.0; got.Memory[0] != want {
		t.Errorf("a device holds %v bytes, want %v", got.Memory[0], want)
	}
}

// Layers that were merged are divided as before.
func TestMergedLayersAreDividedAsTheirParts(t *testing.T) {
	apart := &Job{Devices: kinds(1), Batch: 4, Tensor: []int{2}}
	for range 4 {
		apart.Layers = append(apart.Layers, divisible(80, 16))
	}
	if err := apart.Check(); err != nil {
		t.Fatal(err)
	}
	merged := *apart
	merged.Layers, _ = Merge(apart.Layers, 2)
	if err := merged.Check(); err != nil {
		t.Fatal(err)
	}
	c := Choice{Replicas: 1, MicroBatch: 2, Tensor: 2}
	c.Stages = []Stage{{0, 4, 0}}
	want, err := apart.Evaluate(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Stages = []Stage{{0, 2, 0}}
	got, err := merged.Evaluate(c)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.Time-want.Time) > 1e-9*want.Time || len(got.Sharding) != 4 || got.Memory[0] != want.Memory[0] {
		t.Errorf("merged layers take %v with %v bytes, %d shardings; apart %v with %v", got.Time, got.Memory, len(got.Sharding), want.Time, want.Memory)
	}
}

func TestTensorDegreesThatCannotBePlannedSayWhy(t *testing.T) {
	for want, change := range map[string]func(*Job){
		"tensor: 0 devices":         func(j *Job) { j.Tensor = []int{0} },
		"element: -1 bytes":         func(j *Job) { j.Element = -1 },
		"layers[0] (l): operators[": func(j *Job) { j.Layers[0].Operators[0].Kind = "conv" },
		"nodeBandwidth is 0":        func(j *Job) { j.Devices[0].Node = 8 },
		"node must be":              func(j *Job) { j.Devices[0].Node = -1 },
	} {
		j := &Job{Layers: []Layer{divisible(1, 1)}, Devices: kinds(1), Batch: 4, Tensor: []int{2}}
		change(j)
		if _, err := j.Best(context.Background(), Objective{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
