package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	training "github.com/outboard-run/outboard/internal/train/plan"
)

// planVariable has the plan of a job in the environment of its ranks.
const planVariable = "OUTBOARD_PLAN"

// maxPlannedRanks bounds the ranks of a plan for a job whose file has no number of ranks.
const maxPlannedRanks = 1024

// A jobPlan is a plan as outboard.pipeline reads it.
type jobPlan struct {
	// Layers is the number of the model's layers, Cuts are the first layers of all stages but the
	// first one.
	Layers   int   `json:"layers"`
	Cuts     []int `json:"cuts"`
	Replicas int   `json:"replicas"`
	Tensor   int   `json:"tensor"`
	// MicroBatches is the number of micro-batches that each replica accumulates in a step of Batch
	// samples.
	MicroBatches int               `json:"micro_batches"`
	Batch        int               `json:"batch"`
	Schedule     training.Schedule `json:"schedule"`
	Recompute    bool              `json:"recompute"`
	Neighbours   string            `json:"neighbours"`
	// Strategies are those of the operators of each layer, nil for a layer without; nil unless
	// Tensor is more than 1.
	Strategies [][]string `json:"strategies,omitempty"`
}

// askedOf returns a plan's job with the degrees that a job which runs by its plan leaves open. ranks
// is the most that the plan may need, 0 for as many as there are devices.
func (d *parallelDegrees) askedOf(asked training.Job, ranks int) (_ training.Job, name string, err error) {
	if d.Stages < 0 || d.Replicas < 0 || d.Tensor < 0 {
		return asked, "", usage("parallel: stages, replicas and tensor must not be negative")
	}
	asked.Stages, asked.Ranks = d.Stages, ranks
	if ranks == 0 {
		asked.Ranks = maxPlannedRanks
	}
	if d.Replicas > 0 {
		asked.Replicas = []int{d.Replicas}
	}
	if d.Tensor > 0 {
		asked.Tensor = []int{d.Tensor}
	}
	return asked, "the plan's degrees, on devices of one kind", nil
}

// planOneKind is planAsked with devices of a single kind: a job's selector does not tell kinds apart.
func planOneKind(ctx context.Context, asked *training.Job) (best training.Plan, first []int, err error) {
	if err := asked.Check(); err != nil {
		return best, nil, err
	}
	reason := training.ErrNoPlan
	for kind, device := range asked.Devices {
		one := *asked
		one.Devices = []training.Device{device}
		p, at, err := planAsked(ctx, &one)
		switch {
		case errors.Is(err, training.ErrNoPlan):
		case errors.Is(err, training.ErrUndecided):
			reason = err
		case err != nil:
			return best, nil, err
		case first == nil || p.Time < best.Time:
			for i := range p.Stages {
				p.Stages[i].Device = kind
			}
			best, first = p, at
		}
	}
	if first == nil {
		return best, nil, reason
	}
	return best, first, nil
}

// applyPlan plans a job, and sets the number of its ranks and what they find in their environment by
// the plan.
func (j *jobFile) applyPlan(ctx context.Context, env *Env, path string, s *client.JobSpec) error {
	if j.Plan == nil {
		return usage("%s: parallel: plan needs \"plan:\" with layers, devices and batch; docs/training.md says how", path)
	}
	if j.MinRanks != 0 {
		return usage("%s: minRanks: a job that runs by its plan needs all of its ranks: leave it out", path)
	}
	if err := j.profileLayers(filepath.Dir(path)); err != nil {
		return usage("%s: %w", path, err)
	}
	asked, _, err := j.askedPlan()
	if err != nil {
		return err
	}
	best, first, err := planOneKind(ctx, &asked)
	switch {
	case errors.Is(err, training.ErrNoPlan), errors.Is(err, training.ErrUndecided):
		return outboard.Errorf(outboard.Exhausted, "plan the job", "%w; %s", err, j.fits(ctx))
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return usage("%s: plan: %w", path, err)
	}
	if err := j.setPlan(s, &asked, &best, first); err != nil {
		return err
	}
	printSafe(env.Stderr, "outboard: the job runs by its plan: %s\n", s.Plan)
	return nil
}

// setPlan has a job run by a plan.
func (j *jobFile) setPlan(s *client.JobSpec, asked *training.Job, best *training.Plan, first []int) error {
	p := newJobPlan(asked, best, first)
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	vars := maps.Clone(s.Env)
	if vars == nil {
		vars = make(map[string]string)
	}
	vars[planVariable] = string(text)
	s.Env, s.Ranks = vars, len(best.Stages)*best.Replicas*max(best.Tensor, 1)
	if s.Threads == "" && j.profiledThreads > 0 {
		s.Threads = strconv.Itoa(j.profiledThreads) // The plan's times are those of so many.
	}
	s.Plan = p.describe(asked, best, s.Threads)
	return nil
}

func newJobPlan(asked *training.Job, best *training.Plan, first []int) *jobPlan {
	device := asked.Devices[best.Stages[0].Device]
	p := &jobPlan{
		Layers: len(asked.Layers), Cuts: []int{}, Replicas: best.Replicas, Tensor: max(best.Tensor, 1), MicroBatches: best.Steps,
		Batch: asked.Batch, Schedule: asked.Schedule, Recompute: best.Recompute, Neighbours: "stages",
	}
	for _, s := range best.Stages[1:] {
		p.Cuts = append(p.Cuts, first[s.First])
	}
	if device.Node > 0 {
		p.Neighbours = "replicas" // As the planner assumes for devices with nodes.
	}
	if p.Tensor > 1 {
		p.Strategies = strategiesOf(asked.Layers, best.Sharding)
	}
	return p
}

// strategiesOf returns the strategies of each layer. Those of divided layers are in the order of
// layers.
func strategiesOf(layers []training.Layer, divided []training.LayerSharding) [][]string {
	all := make([][]string, len(layers))
	for i, l := range layers {
		if len(divided) == 0 || len(l.Operators) == 0 || divided[0].Layer != l.Name {
			continue
		}
		for _, o := range divided[0].Operators {
			all[i] = append(all[i], o.Strategy)
		}
		divided = divided[1:]
	}
	return all
}

// describe describes the plan for people.
func (p *jobPlan) describe(asked *training.Job, best *training.Plan, threads string) string {
	var text strings.Builder
	text.WriteString(planText(best))
	fmt.Fprintf(&text, "; %d micro-batch(es) accumulated", p.MicroBatches)
	if len(p.Cuts) > 0 {
		fmt.Fprintf(&text, ", cuts before layers %v", p.Cuts)
	}
	fmt.Fprintf(&text, ", on devices as %q", asked.Devices[best.Stages[0].Device].Name)
	if threads != "" {
		fmt.Fprintf(&text, ", threads %s", threads)
	}
	return text.String()
}
