package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
)

type workflowsOptions struct{ output format }

func newWorkflowsCommand(env *Env) *cobra.Command {
	var opts workflowsOptions
	cmd := &cobra.Command{
		Use:   "workflows [APP]",
		Short: "List the workflows of the apps, with the states of their executions",
		Example: `  outboard workflows
  outboard workflows thumbnails -o json`,
		Args: atMostOne("name one app"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runWorkflows(cmd.Context(), env, opts, first(args))
		},
		ValidArgsFunction: env.firstArg(appWords),
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runWorkflows(ctx context.Context, env *Env, opts workflowsOptions, app string) error {
	stop := env.reportIfSlow("reading the logs of the executions")
	workflows, err := env.client().Workflows(ctx, app)
	stop()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, w := range workflows {
		rows = append(rows, []string{
			w.App + "/" + w.Name, strconv.Itoa(w.Steps), strconv.Itoa(w.Running), strconv.Itoa(w.Completed), strconv.Itoa(w.Faulted), strconv.Itoa(w.Cancelled),
		})
	}
	return opts.output.print(env, workflows, []string{"WORKFLOW", "STEPS", "RUNNING", "COMPLETED", "FAULTED", "CANCELLED"}, rows)
}
