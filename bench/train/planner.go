package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/train/plan"
)

// transformer returns layers whose sizes are those of a transformer's blocks, with some spread.
func transformer(n int, seed uint64) []plan.Layer {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // sizes of layers
	vary := func(x float64) float64 { return x * (0.5 + r.Float64()) }
	all := make([]plan.Layer, n)
	for i := range all {
		all[i] = plan.Layer{
			Name: fmt.Sprintf("block%d", i), Parameters: vary(30e6), Output: vary(400e3), Stored: vary(5e6),
			Forward: vary(0.05), Backward: vary(0.1), Launch: 1e-3,
		}
	}
	return all
}

// functions returns kinds of function like FuncPipe's: processors and price grow with the memory. A
// function of 1,769 MiB has one processor (AWS Lambda), which is speed 1.
func functions(count int) []plan.Device {
	const gib = 1 << 30
	all := make([]plan.Device, count)
	for i := range all {
		memory := 10.0 / float64(count) * float64(i+1)
		all[i] = plan.Device{
			Name: fmt.Sprintf("%.3gGiB", memory), Speed: memory * 1024 / 1769, Memory: memory * gib, Bandwidth: 70e6, Latency: 0.02,
			Price: 1.66667e-5 * memory,
		}
	}
	return all
}

// planner times the search for plans.
func (b *bench) planner(ctx context.Context) error {
	const kinds = 8
	for _, c := range []struct {
		layers    int
		most      float64
		objective plan.Objective
		name      string
	}{
		{30, 1, plan.Objective{}, "the fastest plan"},
		{30, 1, plan.Objective{Cheapest: true}, "the cheapest plan"},
		{200, 10, plan.Objective{}, "the fastest plan"},
		{200, 10, plan.Objective{Cheapest: true}, "the cheapest plan"},
	} {
		var seconds []float64
		for seed := range b.Rounds(9, 3) {
			began, err := processorTime()
			if err != nil {
				return err
			}
			layers, _ := plan.Merge(transformer(c.layers, uint64(seed)), plan.MaxLayers)
			j := &plan.Job{Layers: layers, Devices: functions(kinds), Batch: 64, Optimizer: 3, Reduction: plan.Store}
			if _, err := j.Best(ctx, c.objective); err != nil {
				return err
			}
			ended, err := processorTime()
			if err != nil {
				return err
			}
			seconds = append(seconds, (ended - began).Seconds())
		}
		name := fmt.Sprintf("planner: %s of %d layers on %d kinds of device, processor time", c.name, c.layers, kinds)
		b.Row(paired.NewRow(name, "s", "", seconds, nil, paired.Goal{Max: c.most}))
	}
	return nil
}

// processorTime returns the processor time that this process has used.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// plans compares the planner's plans with plans chosen by hand, for measured models.
func (b *bench) plans(ctx context.Context) error {
	list, err := b.train(ctx, 1, "measure.py", strconv.Itoa(b.Rounds(5, 1)))
	if err != nil {
		return err
	}
	for _, r := range list {
		var m struct {
			Model  string       `json:"model"`
			Layers []plan.Layer `json:"layers"`
		}
		if err := json.Unmarshal(r.text, &m); err != nil {
			return err
		}
		layers, _ := plan.Merge(m.Layers, plan.MaxLayers)
		j := &plan.Job{Layers: layers, Devices: functions(8), Batch: 64, Optimizer: 1, Reduction: plan.Store}
		if err := b.comparePlans(ctx, m.Model, j); err != nil {
			return err
		}
	}
	b.note("The plans are for functions of AWS Lambda's sizes, prices and bandwidth (70 MB/s), with gradients through a store and batches of 64; " +
		"layer times are processor times of one core, measured in this run, equal layers once. FuncPipe's AmoebaNet-D is not among the models: PyTorch has none.")
	return nil
}

// comparePlans adds rows that compare the planned choices with those made by hand.
func (b *bench) comparePlans(ctx context.Context, model string, j *plan.Job) error {
	fast, cheap := plan.Objective{}, plan.Objective{Cheapest: true}
	fastest, err := j.Best(ctx, fast)
	if err != nil {
		return err
	}
	cheapest, err := j.Best(ctx, cheap)
	if err != nil {
		return err
	}
	for _, hand := range []struct {
		name   string
		choose func(plan.Objective) (plan.Plan, error)
	}{
		{"data-parallel only", j.DataParallel},
		{"equal cuts, the best number of stages", func(o plan.Objective) (plan.Plan, error) { return bestEqual(j, o) }},
	} {
		name := fmt.Sprintf("%s, plan against %s: times faster, or cheaper", model, hand.name)
		quick, err := hand.choose(fast)
		if err != nil {
			b.note(fmt.Sprintf("%s: %s: %v.", model, hand.name, err))
			continue
		}
		thrifty, err := hand.choose(cheap)
		if err != nil {
			return err
		}
		faster, cheaper := quick.Time/fastest.Time, thrifty.Cost/cheapest.Cost
		b.Row(paired.NewRow(name, "", "", []float64{max(faster, cheaper)}, nil, paired.Goal{Min: 1.3}).
			Because("the planned optimum is no better here"))
		b.note(fmt.Sprintf("%s: the fastest plan (%s) is %.2f times faster than %s, the cheapest one (%s) %.2f times cheaper.",
			model, describe(j, &fastest), faster, hand.name, describe(j, &cheapest), cheaper))
	}
	return nil
}

// bestEqual returns the best plan of equal cuts with two to eight stages.
func bestEqual(j *plan.Job, o plan.Objective) (best plan.Plan, err error) {
	value := func(p *plan.Plan) float64 {
		if o.Cheapest {
			return p.Cost
		}
		return p.Time
	}
	least := math.Inf(1)
	for stages := 2; stages <= 8; stages++ {
		p, failed := j.EqualCuts(o, stages)
		if failed != nil {
			err = failed
		} else if value(&p) < least {
			best, least = p, value(&p)
		}
	}
	if math.IsInf(least, 1) {
		return best, err
	}
	return best, nil
}

func describe(j *plan.Job, p *plan.Plan) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d stages of %d replicas, %d micro-batches of %d, %.3g s a step, on", len(p.Stages), p.Replicas, p.Steps, p.MicroBatch, p.Time)
	for _, s := range p.Stages {
		text.WriteString(" " + j.Devices[s.Device].Name)
	}
	return text.String()
}
