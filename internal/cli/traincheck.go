package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/outboard-run/outboard"
	training "github.com/outboard-run/outboard/internal/train/plan"
)

// askedPlan returns the plan's job with the degrees that the job's file asks for, and their
// description. Without degrees the plan may have any that need no more than the job's ranks.
func (j *jobFile) askedPlan() (asked training.Job, name string, err error) {
	asked = *j.Plan
	ranks := max(j.Ranks, 1)
	if j.Parallel.planned() {
		return j.Parallel.askedOf(asked, j.Ranks)
	}
	if j.Parallel == nil {
		asked.Ranks = ranks
		return asked, fmt.Sprintf("%d rank(s) at most", ranks), nil
	}
	d, err := j.Parallel.resolve(ranks)
	if err != nil {
		return asked, "", err
	}
	asked.Stages, asked.Replicas, asked.Tensor = d.Stages, []int{d.Replicas}, []int{d.Tensor}
	return asked, d.String(), nil
}

// checkPlan plans the job with the degrees that its file asks for, and returns an error if the plan
// is malformed or its stages have no room: before a device is leased.
func (j *jobFile) checkPlan(ctx context.Context, env *Env, path string) error {
	if j.Plan == nil {
		return nil
	}
	if err := j.profileLayers(filepath.Dir(path)); err != nil {
		return usage("%s: %w", path, err)
	}
	asked, name, err := j.askedPlan()
	if err != nil {
		return err
	}
	best, _, err := planAsked(ctx, &asked)
	switch {
	case errors.Is(err, training.ErrUndecided):
		printSafe(env.Stderr, "outboard: plan for %s: %v\n", name, err)
		return nil
	case errors.Is(err, training.ErrNoPlan):
		return outboard.Errorf(outboard.Exhausted, "plan the job for "+name, "%w; %s", err, j.fits(ctx))
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return usage("%s: plan: %w", path, err)
	}
	printSafe(env.Stderr, "outboard: the plan has %s; `outboard plan train %s` has the alternatives\n", planText(&best), path)
	return nil
}

// askedLine returns the plan with the degrees that the job's file asks for, or the reason that
// checkPlan gives.
func (j *jobFile) askedLine(ctx context.Context) (trainPlanLine, error) {
	asked, name, err := j.askedPlan()
	if err != nil {
		return trainPlanLine{}, err
	}
	line := trainPlanLine{Name: "as asked: " + name}
	choose := planAsked
	if j.Parallel.planned() {
		choose = planOneKind
	}
	best, _, err := choose(ctx, &asked)
	if line.Plan = &best; err != nil {
		line.Plan, line.Unknown = nil, err.Error()
	}
	return line, ctx.Err()
}

// planAsked returns the fastest plan with the degrees of a job, and the index of the first of the
// job's layers that is in each of the plan's. If layers had to be merged it never returns ErrNoPlan,
// since a merged layer may need more memory than each of its parts.
func planAsked(ctx context.Context, asked *training.Job) (best training.Plan, first []int, err error) {
	if err := asked.Check(); err != nil {
		return best, nil, err
	}
	merged := *asked
	merged.Layers, first = training.Merge(asked.Layers, training.MaxLayers)
	if len(merged.Layers) == len(asked.Layers) {
		best, err = merged.Best(ctx, training.Objective{})
		return best, first, err
	}
	if merged.Stages > len(merged.Layers) {
		return best, nil, training.ErrUndecided
	}
	best, err = merged.Best(ctx, training.Objective{})
	if errors.Is(err, training.ErrNoPlan) {
		return best, nil, training.ErrUndecided
	}
	return best, first, err
}

// fits describes the fastest plan without the degrees that the job's file asks for.
func (j *jobFile) fits(ctx context.Context) string {
	free := *j.Plan
	best, _, err := planAsked(ctx, &free)
	switch {
	case errors.Is(err, training.ErrNoPlan):
		return "no other degrees fit either"
	case err != nil:
		return "whether other degrees fit is not known"
	}
	return fmt.Sprintf("what would fit: %d rank(s) in %s", len(best.Stages)*best.Replicas*max(best.Tensor, 1), planText(&best))
}

// planText describes the degrees, the time of a step and the memory of a plan.
func planText(p *training.Plan) string {
	d := parallelDegrees{Stages: len(p.Stages), Replicas: p.Replicas, Tensor: max(p.Tensor, 1)}
	return fmt.Sprintf("%v, with micro-batches of %d: %s for a step, at most %v of a device's memory",
		&d, p.MicroBatch, secondsText(p.Scheduled), outboard.Bytes(slices.Max(p.Memory)))
}
