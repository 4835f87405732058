package plan

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Worked by hand: two layers of 1 s forward and 2 s backward, on a device each, two micro-batches
// of one sample, 1 s for what is sent between them.
func TestEvaluateAgainstAPipelineByHand(t *testing.T) {
	layer := Layer{Name: "l", Parameters: 10, Output: 5, Stored: 3, Forward: 1, Backward: 2}
	j := &Job{
		Layers:  []Layer{layer, layer},
		Devices: []Device{{Name: "d", Speed: 1, Memory: 1000, Bandwidth: 5, Price: 2}},
		Batch:   2, Optimizer: 1, Schedule: GPipe,
	}
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := j.Evaluate(Choice{Stages: []Stage{{0, 1, 0}, {1, 2, 0}}, Replicas: 1, MicroBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Forward: 1 (stage 0) + 1 (send) + 1 (stage 1), and 1 for the second micro-batch.
	// Backward: 2 + 1 + 2, and 2 more.
	want := Plan{Choice: got.Choice, Steps: 2, Forward: 4, Time: 11, Scheduled: 11, Cost: 44, Memory: []float64{26, 26}, Sync: []float64{0, 0}}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// The formulas of the reductions, as the papers have them.
func TestSyncTakesWhatTheFormulasSay(t *testing.T) {
	for _, c := range []struct {
		reduction Reduction
		replicas  int
		want      float64 // for s/w = 1 s
	}{
		{Ring, 4, 2 * (1 - 1.0/4)}, {Store, 4, 2}, {Store, 16, 2}, {PlainStore, 4, 3 - 2.0/4}, {PlainStore, 16, 3 - 2.0/16}, {Ring, 1, 0}, {PlainStore, 1, 0},
	} {
		j := &Job{
			Layers: []Layer{{Parameters: 70}}, Devices: []Device{{Speed: 1, Memory: 1e9, Bandwidth: 70}},
			Batch: c.replicas, Reduction: c.reduction,
		}
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		p, err := j.Evaluate(Choice{Stages: []Stage{{0, 1, 0}}, Replicas: c.replicas, MicroBatch: 1})
		if err != nil || math.Abs(p.Sync[0]-c.want) > 1e-9 {
			t.Errorf("%s, %d replicas: sync takes %v (%v), want %v", c.reduction, c.replicas, p.Sync, err, c.want)
		}
	}
}

func TestMergeKeepsTheSums(t *testing.T) {
	layers := transformer(200, 7)
	merged, first := Merge(layers, MaxLayers)
	if len(merged) != MaxLayers || len(first) != MaxLayers || first[0] != 0 {
		t.Fatalf("%d layers, first ones %v", len(merged), first)
	}
	sum := func(layers []Layer) (s Layer) {
		for _, l := range layers {
			s = join(s, l)
		}
		s.Name = ""
		return s
	}
	if d := cmp.Diff(sum(layers), sum(merged), cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Errorf("(-all +merged)\n%s", d)
	}
	for i, f := range first {
		end := len(layers)
		if i+1 < len(first) {
			end = first[i+1]
		}
		if merged[i].Output != layers[end-1].Output {
			t.Errorf("merged layer %d of %d to %d has the output of another", i, f, end)
		}
	}
}

// FuncPipe reports 1.3 to 2.2 times the speed of data-parallel training, on functions of some
// GiB with links of 70 MB/s.
func TestBestIsFasterThanWhatIsChosenByHand(t *testing.T) {
	j := &Job{Layers: transformer(12, 1), Devices: kinds(8), Batch: 64, Optimizer: 3, Reduction: Store}
	best, err := j.Best(context.Background(), Objective{})
	if err != nil {
		t.Fatal(err)
	}
	parallel, err := j.DataParallel(Objective{})
	if err != nil {
		t.Fatal(err)
	}
	if ratio := parallel.Time / best.Time; ratio < 1.3 {
		t.Errorf("planned %.2f times as fast as data-parallel, want 1.3", ratio)
	}
	for stages := 1; stages <= 12; stages++ {
		if equal, err := j.EqualCuts(Objective{}, stages); err == nil && equal.Time < best.Time {
			t.Errorf("%d equal stages take %v, less than the best plan's %v", stages, equal.Time, best.Time)
		}
	}
}

func TestJobsThatCannotBePlannedSayWhy(t *testing.T) {
	good := func() *Job {
		return &Job{Layers: transformer(3, 1), Devices: kinds(2), Batch: 8, Optimizer: 3}
	}
	for want, change := range map[string]func(*Job){
		"layers: there are none":                        func(j *Job) { j.Layers = nil },
		"layers[1] (block1): forward is NaN":            func(j *Job) { j.Layers[1].Forward = math.NaN() },
		"devices: there are 0 kinds":                    func(j *Job) { j.Devices = nil },
		"devices[0] (1GiB): bandwidth is 0":             func(j *Job) { j.Devices[0].Bandwidth = 0 },
		"devices[1] (2GiB): count is -1":                func(j *Job) { j.Devices[1].Count = -1 },
		"batch: 0 samples":                              func(j *Job) { j.Batch = 0 },
		"are no whole number of micro-batches of [3]":   func(j *Job) { j.MicroBatches = []int{3} },
		"stages: 4 of 3 layers":                         func(j *Job) { j.Stages = 4 },
		"the job has 4 ranks, fewer than":               func(j *Job) { j.Stages, j.Ranks, j.Replicas = 3, 4, []int{2} },
		"schedule: \"zb\"":                              func(j *Job) { j.Schedule = "zb" },
		"reduction: \"tree\"":                           func(j *Job) { j.Reduction = "tree" },
		"layer 0 (block0) needs 3.6TiB on a device":     func(j *Job) { j.Layers[0].Parameters = 1e12 },
		"with micro-batches of 1 and its operators":     func(j *Job) { j.Layers[0].Stored = 1e12 },
		"more memory or devices than there are, though": func(j *Job) { j.Devices, j.Layers = kinds(1), transformer(12, 1); j.Devices[0].Count = 1 },
	} {
		j := good()
		change(j)
		_, err := j.Best(context.Background(), Objective{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if _, err := good().Best(context.Background(), Objective{MaxTime: 1e-9}); !errors.Is(err, ErrNoPlan) {
		t.Errorf("a deadline that nothing meets: %v, want ErrNoPlan", err)
	}
}
