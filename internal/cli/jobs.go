package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type jobsOptions struct {
	output format
	why    bool
}

func newJobsCommand(env *Env) *cobra.Command {
	var opts jobsOptions
	cmd := &cobra.Command{
		Use:   "jobs [JOB]",
		Short: "List the training jobs of the pool",
		Long: `List the training jobs of the pool, the newest first, or show one as ` + "`outboard jobs show`" + ` does.
` + "`outboard train --device`" + ` submits jobs. The lines of a job are shown by ` + "`outboard logs JOB`" + `.`,
		Example: `  outboard jobs
  outboard jobs show job-k3ab72xq --why
  outboard jobs cancel job-k3ab72xq`,
		Args: atMostOne("name one job, or none to list all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return runJobsShow(cmd.Context(), env, jobsShowOptions{output: opts.output, why: opts.why}, args[0])
			}
			return runJobs(cmd.Context(), env, opts)
		},
		ValidArgsFunction: env.firstArg(jobWords),
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	addWhyFlag(cmd, &opts.why)
	cmd.AddCommand(newJobsShowCommand(env), newJobsCancelCommand(env), newJobsResumeCommand(env))
	return cmd
}

// newJobVerbs returns the verbs of jobs without their noun, for users who expect them beside
// `outboard logs`.
func newJobVerbs(env *Env) []*cobra.Command {
	stop, resume := newJobsCancelCommand(env), newJobsResumeCommand(env)
	stop.Use, stop.Example = "stop JOB", "  outboard stop job-k3ab72xq"
	resume.Example = "  outboard resume job-k3ab72xq"
	stop.Hidden, resume.Hidden = true, true
	return []*cobra.Command{stop, resume}
}

func runJobs(ctx context.Context, env *Env, opts jobsOptions) error {
	list, err := env.client().Jobs(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for i := range list {
		j := &list[i]
		rows = append(rows, []string{
			j.ID, clean(j.Spec.Name), string(j.Node), string(j.State), strconv.Itoa(j.Spec.Ranks), jobTime(j), orDash(jobProgress(j)), orDash(clean(j.Reason)),
		})
	}
	return opts.output.print(env, list, []string{"JOB", "NAME", "NODE", "STATE", "RANKS", "TIME", "PROGRESS", "REASON"}, rows)
}

// jobTime returns how long a job has run, "-" if it has not started.
func jobTime(j *client.Job) string {
	switch {
	case j.Started.IsZero():
		return "-"
	case j.Ended.IsZero():
		return age(time.Now(), j.Started)
	}
	return j.Ended.Sub(j.Started).Round(time.Second).String()
}

func jobProgress(j *client.Job) string {
	p := j.Prog
	if p.Step == 0 {
		return ""
	}
	text := fmt.Sprintf("step %d", p.Step)
	if p.Steps > 0 {
		text += fmt.Sprintf("/%d", p.Steps)
	}
	if p.Loss != 0 {
		text += fmt.Sprintf(", loss %.4g", p.Loss)
	}
	if p.Samples > 0 {
		text += fmt.Sprintf(", %.4g samples/s", p.Samples)
	}
	if p.Left > 0 && !j.State.Final() {
		text += fmt.Sprintf(", %v left", p.Left)
	}
	return text
}

type jobsShowOptions struct {
	output  format
	why     bool
	profile string
}

func newJobsShowCommand(env *Env) *cobra.Command {
	var opts jobsShowOptions
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show where the ranks of a job run, how far it is, and why it ended",
		Long: `Show where the ranks of a job run, how far it is, and why it ended. With --why also what was
decided for it: where ranks were placed, and the algorithms of collectives for the measured links.

Progress is what rank 0 writes: "step 12/100 loss 0.25 samples 64".

--profile writes and shows the profiles of the ranks instead, of a job that was submitted with
` + "`outboard train --profile`" + ` and has ended. Use it on the node that the job was submitted to.`,
		Example:           "  outboard jobs show job-k3ab72xq\n  outboard jobs show job-k3ab72xq --why -o json\n  outboard jobs show job-k3ab72xq --profile profile.json",
		Args:              oneArg("name one job; `outboard jobs` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runJobsShow(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(jobWords),
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	addWhyFlag(cmd, &opts.why)
	cmd.Flags().StringVar(&opts.profile, "profile", "", "write the profiles of the job's ranks into `FILE`, and show them")
	return cmd
}

func addWhyFlag(cmd *cobra.Command, why *bool) {
	cmd.Flags().BoolVar(why, "why", false, "also show what was decided, and from what")
}

func runJobsShow(ctx context.Context, env *Env, opts jobsShowOptions, id string) error {
	if opts.profile != "" {
		path, err := prepareProfile(opts.profile)
		if err != nil {
			return err
		}
		return fetchProfile(ctx, env, id, path, opts.output)
	}
	j, err := env.client().Job(ctx, id)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, j, nil, nil)
	}
	rows := [][]string{
		{"name", clean(j.Spec.Name)},
		{"node", string(j.Node)},
		{"state", string(j.State)},
		{"reason", orDash(clean(j.Reason))},
		{"program", clean(strings.Join(j.Spec.Args, " "))},
		{"devices", orDash(j.Spec.Selector.String())},
		{"ranks", fmt.Sprintf("%d of %d, attempt %d", j.World, j.Spec.Ranks, j.Attempt)},
		{"created", j.Created.Local().Format(time.DateTime)},
		{"time", jobTime(&j)},
		{"progress", orDash(jobProgress(&j))},
	}
	for _, r := range j.Ranks {
		rows = append(rows, []string{rankRange(r), fmt.Sprintf("%s, device %s", r.Node, r.Device)})
	}
	for _, u := range j.Devices {
		rows = append(rows, []string{"used", fmt.Sprintf("%d device(s) of %s, %.0f device-seconds", u.Devices, u.Node, u.Seconds)})
	}
	if c := j.Checkpoint; c != nil {
		rows = append(rows, []string{"checkpoint", fmt.Sprintf("of step %d, %v, saved %s", c.Step, c.Size, c.Saved.Local().Format(time.DateTime))})
	}
	if opts.why {
		for _, w := range j.Why {
			rows = append(rows, []string{"why", clean(w)})
		}
	}
	return opts.output.print(env, j, []string{"JOB", j.ID}, rows)
}

func rankRange(r client.JobRank) string {
	if r.Count == 1 {
		return fmt.Sprintf("rank %d", r.First)
	}
	return fmt.Sprintf("ranks %d-%d", r.First, r.First+r.Count-1)
}

func newJobsCancelCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel JOB",
		Short: "End the ranks of a job, which can be resumed",
		Long: `End the ranks of a job: they get SIGTERM, and SIGKILL three seconds later. Use it on the node that
the job was submitted to. ` + "`outboard jobs resume`" + ` starts the job again.`,
		Example:           "  outboard jobs cancel job-k3ab72xq",
		Args:              oneArg("name one job; `outboard jobs` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return env.client().CancelJob(cmd.Context(), args[0]) },
		ValidArgsFunction: env.firstArg(jobWords),
	}
}

func newJobsResumeCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "resume JOB",
		Short: "Start a job again that has failed or was canceled",
		Long: `Start a job again that has failed or was canceled, with the files that it was submitted with. It
goes on in the background: ` + "`outboard logs JOB -f`" + ` follows it. Use it on the node that the job was
submitted to.`,
		Example:           "  outboard jobs resume job-k3ab72xq",
		Args:              oneArg("name one job; `outboard jobs` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return env.client().ResumeJob(cmd.Context(), args[0]) },
		ValidArgsFunction: env.firstArg(jobWords),
	}
}

// jobWordsIfAny is jobWords for an argument that may be a job's ID or another name.
func jobWordsIfAny(ctx context.Context, c *client.Client) ([]string, error) {
	words, _ := jobWords(ctx, c) // completion can't show errors
	return words, nil
}

// jobWords returns the IDs of the pool's jobs.
func jobWords(ctx context.Context, c *client.Client) ([]string, error) {
	list, err := c.Jobs(ctx)
	var words []string
	for i := range list {
		words = append(words, list[i].ID)
	}
	return words, err
}
