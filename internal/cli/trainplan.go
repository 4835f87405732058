package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	training "github.com/outboard-run/outboard/internal/train/plan"
)

type trainPlanOptions struct {
	output   format
	budget   string
	deadline time.Duration
	cheapest bool
	plot     string
}

func newPlanTrainCommand(env *Env) *cobra.Command {
	var opts trainPlanOptions
	cmd := &cobra.Command{
		Use:   "train JOB.yaml",
		Short: "Plan how a training step is divided over devices, and what it takes",
		Long: `Plan how a training step is divided over devices: cuts of the layers into stages, a kind of device
for each stage, replicas, micro-batches and, where the file names the operators of layers, the
devices that divide them. The plan is the best one of all, for the times and sizes that the file
has under "plan", and stands beside what people choose by hand: one stage on every device, stages
of equal length, and a single kind of parallelism.

Without goals it is the fastest. --deadline asks for the cheapest one that keeps it, --budget for
the fastest one that costs no more; both are of the whole training, "steps" in the file. --plot
draws the cheapest plan for each time, from the fastest one to the cheapest one.

If the file has "ranks" or "parallel", the line "as asked" has the plan with these, or the reason
for which ` + "`outboard train JOB.yaml`" + ` will refuse to start it.

The layers are those under "plan", or of the "profile" that the file names, which
` + "`outboard train --profile`" + ` has measured.`,
		Example: `  outboard plan train job.yaml
  outboard plan train job.yaml --plot plan.html
  outboard plan train job.yaml --deadline 2h
  outboard plan train job.yaml --budget 20EUR -o json`,
		Args: oneArg("name the job's file: outboard plan train JOB.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPlanTrain(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.Flags().StringVar(&opts.budget, "budget", "", "most that the whole training may cost, in the unit of the devices' prices: `PRICE`")
	cmd.Flags().DurationVar(&opts.deadline, "deadline", 0, "time in which the whole training must end")
	cmd.Flags().StringVar(&opts.plot, "plot", "", "also draw time and price of the best plans into `FILE`: .svg or .html")
	cmd.Flags().BoolVar(&opts.cheapest, "cheapest", false, "the cheapest plan instead of the fastest")
	return cmd
}

// A trainPlan is the output of `outboard plan train`.
type trainPlan struct {
	Layers []training.Layer `json:"layers"`
	Steps  int              `json:"steps,omitempty"`
	Plans  []trainPlanLine  `json:"plans"`
}

// A trainPlanLine is one plan; the first is the best one.
type trainPlanLine struct {
	Name string         `json:"name"`
	Plan *training.Plan `json:"plan,omitempty"`
	// Unknown is the reason that there is no such plan.
	Unknown string `json:"unknown,omitempty"`
}

func runPlanTrain(ctx context.Context, env *Env, opts trainPlanOptions, path string) error {
	if ext := filepath.Ext(opts.plot); opts.plot != "" && ext != ".svg" && ext != ".html" {
		return usage("--plot %s: want a file whose name ends with .svg or .html", opts.plot)
	}
	f, err := readJobFile(path)
	if err != nil {
		return err
	}
	if f.Plan == nil {
		return usage("%s has nothing to plan: add \"plan:\" with layers, devices and batch; docs/training.md says how", path)
	}
	if err := f.profileLayers(filepath.Dir(path)); err != nil {
		return usage("%s: %w", path, err)
	}
	objective, err := opts.objective(f.Steps)
	if err != nil {
		return err
	}
	j := *f.Plan
	if err := j.Check(); err != nil {
		return usage("%s: plan: %w", path, err)
	}
	j.Layers, _ = training.Merge(j.Layers, training.MaxLayers)
	best, err := j.Best(ctx, objective)
	if errors.Is(err, training.ErrNoPlan) {
		if text := possibleText(ctx, &j, f.Steps); text != "" && (objective.MaxTime > 0 || objective.MaxCost > 0) {
			return outboard.Errorf(outboard.Exhausted, "plan the job", "no plan meets the goals: %s", text)
		}
	}
	if errors.Is(err, training.ErrNoPlan) || errors.Is(err, training.ErrUndecided) {
		return outboard.Errorf(outboard.Exhausted, "plan the job", "%w", err)
	}
	if err != nil {
		return usage("%s: plan: %w", path, err)
	}
	p := trainPlan{Layers: j.Layers, Steps: f.Steps, Plans: []trainPlanLine{{Name: "best", Plan: &best}}}
	if f.Ranks > 0 || f.Parallel != nil {
		line, err := f.askedLine(ctx)
		if err != nil {
			return err
		}
		p.Plans = append(p.Plans, line)
	}
	p.Plans = append(p.Plans, plansByHand(ctx, &j, objective)...)
	if opts.plot != "" {
		if err := plotPlans(ctx, opts.plot, &j, &p); err != nil {
			return err
		}
	}
	return opts.print(env, &j, &p)
}

// possibleText describes the whole training by the fastest and by the cheapest plan, "" if there are
// none.
func possibleText(ctx context.Context, j *training.Job, steps int) string {
	fastest, err := j.Best(ctx, training.Objective{})
	if err != nil {
		return ""
	}
	cheapest, err := j.Best(ctx, training.Objective{Cheapest: true})
	if err != nil {
		return ""
	}
	return fmt.Sprintf("time and price of the fastest are %s, of the cheapest %s", totalText(&fastest, steps), totalText(&cheapest, steps))
}

// plansByHand returns what people choose by hand.
func plansByHand(ctx context.Context, j *training.Job, objective training.Objective) (lines []trainPlanLine) {
	add := func(name string, choose func() (training.Plan, error)) {
		line := trainPlanLine{Name: name}
		if plan, err := choose(); err == nil {
			line.Plan = &plan
		} else {
			line.Unknown = err.Error()
		}
		lines = append(lines, line)
	}
	add("data-parallel only", func() (training.Plan, error) { return j.DataParallel(objective) })
	for _, stages := range []int{2, 4} {
		if stages <= len(j.Layers) {
			add(fmt.Sprintf("%d equal stages", stages), func() (training.Plan, error) { return j.EqualCuts(objective, stages) })
		}
	}
	if len(j.Tensor) > 0 {
		add("pipeline only", func() (training.Plan, error) { return j.Pipeline(ctx, objective) })
		add("tensor-parallel only", func() (training.Plan, error) { return j.TensorParallel(objective) })
	}
	return lines
}

// objective returns what the goals ask of one step.
func (o *trainPlanOptions) objective(steps int) (training.Objective, error) {
	objective := training.Objective{Cheapest: o.cheapest}
	if (o.budget != "" || o.deadline != 0) && steps < 1 {
		return objective, usage("--budget and --deadline are of the whole training: add \"steps:\" to the job's file")
	}
	if o.deadline < 0 {
		return objective, usage("--deadline %v: want more than 0", o.deadline)
	}
	if o.deadline > 0 {
		objective.Cheapest, objective.MaxTime = true, o.deadline.Seconds()/float64(steps)
	}
	if o.budget != "" {
		price, err := strconv.ParseFloat(strings.TrimRight(o.budget, "ABCDEFGHIJKLMNOPQRSTUVWXYZ€$ "), 64)
		if err != nil || !(price > 0) {
			return objective, usage("--budget %s: want a price, as 20 or 20EUR", o.budget)
		}
		objective.Cheapest, objective.MaxCost = o.deadline > 0 || o.cheapest, price/float64(steps)
	}
	return objective, nil
}

func (o *trainPlanOptions) print(env *Env, j *training.Job, p *trainPlan) error {
	var rows [][]string
	for _, l := range p.Plans {
		if l.Plan == nil {
			rows = append(rows, []string{l.Name, "-", "-", "-", "-", "-", "-", "-", "-", "-", l.Unknown})
			continue
		}
		rows = append(rows, []string{
			l.Name, strconv.Itoa(len(l.Plan.Stages)), strconv.Itoa(l.Plan.Replicas), strconv.Itoa(max(l.Plan.Tensor, 1)),
			strconv.Itoa(l.Plan.MicroBatch), strconv.Itoa(l.Plan.Steps),
			secondsText(l.Plan.Time), secondsText(l.Plan.Scheduled), fmt.Sprintf("%.4g", l.Plan.Cost), totalText(l.Plan, p.Steps), gapText(l.Plan),
		})
	}
	titles := []string{"PLAN", "STAGES", "REPLICAS", "TENSOR", "MICRO-BATCH", "ACCUMULATED", "STEP", "BY SCHEDULE", "PRICE OF A STEP", "WHOLE TRAINING", "REMARK"}
	if err := o.output.print(env, p, titles, rows); err != nil || o.output == "json" {
		return err
	}
	best := p.Plans[0].Plan
	rows = nil
	for i, s := range best.Stages {
		rows = append(rows, []string{
			strconv.Itoa(i), layerRange(p.Layers, s), j.Devices[s.Device].Name, outboard.Bytes(best.Memory[i]).String(), secondsText(best.Sync[i]),
		})
	}
	printSafe(env.Stdout, "\n")
	if err := o.output.print(env, nil, []string{"STAGE", "LAYERS", "DEVICE", "MEMORY", "REDUCTION"}, rows); err != nil || len(best.Sharding) == 0 {
		return err
	}
	printSafe(env.Stdout, "\n")
	return o.output.print(env, nil, []string{"LAYER", "STRATEGIES OF ITS OPERATORS"}, shardingRows(best.Sharding))
}

// shardingRows returns how the operators of layers are divided, neighbours that are divided alike as
// one row.
func shardingRows(layers []training.LayerSharding) (rows [][]string) {
	first := 0
	for i, l := range layers {
		if i+1 < len(layers) && slices.Equal(l.Operators, layers[i+1].Operators) {
			continue
		}
		var strategies []string
		for _, o := range l.Operators {
			strategies = append(strategies, o.Name+" "+o.Strategy)
		}
		name := l.Layer
		if first < i {
			name = layers[first].Layer + " to " + name
		}
		rows = append(rows, []string{name, strings.Join(strategies, ", ")})
		first = i + 1
	}
	return rows
}

func layerRange(layers []training.Layer, s training.Stage) string {
	name := func(i int) string {
		if layers[i].Name == "" {
			return strconv.Itoa(i)
		}
		return layers[i].Name
	}
	if s.End == s.First+1 {
		return name(s.First)
	}
	return name(s.First) + " to " + name(s.End-1)
}

func secondsText(s float64) string {
	return durationText(s, 10*time.Microsecond)
}

// durationText returns a time as a multiple of a unit.
func durationText(seconds float64, unit time.Duration) string {
	if seconds >= math.MaxInt64/float64(time.Second) {
		return "more than 292 years"
	}
	return time.Duration(seconds * float64(time.Second)).Round(unit).String()
}

// totalText returns the time and price of the whole training, "-" if the number of steps is not
// known.
func totalText(p *training.Plan, steps int) string {
	if steps < 1 {
		return "-"
	}
	n := float64(steps)
	return fmt.Sprintf("%s, %.4g", durationText(p.Time*n, time.Second), p.Cost*n)
}

func gapText(p *training.Plan) string {
	if p.Gap > 0 {
		return fmt.Sprintf("a better one may lie %.1f %% below", 100*p.Gap)
	}
	return "-"
}
