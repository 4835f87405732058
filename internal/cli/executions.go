package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type executionsOptions struct {
	output format
	state  string
	limit  int
}

func executionStates() []string {
	return []string{
		client.StatePending, client.StateRunning, client.StateWaiting, client.StateCompleted, client.StateFaulted, client.StateCancelled,
	}
}

func newExecutionsCommand(env *Env) *cobra.Command {
	var opts executionsOptions
	cmd := &cobra.Command{
		Use:   "executions [APP[/WORKFLOW]]",
		Short: "List the executions of workflows, newest first",
		Example: `  outboard executions
  outboard executions thumbnails/thumbnail --state running
  outboard executions -o json
  outboard executions show thumbnails/0d8b1c6tq4`,
		Args: atMostOne("name one app or workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExecutions(cmd.Context(), env, opts, first(args))
		},
		ValidArgsFunction: env.firstArg(joinWords(appWords, workflowWords)),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.state, "state", "", "only executions in `STATE`: "+strings.Join(executionStates(), ", "))
	cmd.Flags().IntVar(&opts.limit, "limit", 100, "the number of executions at most, 0 for all")
	complete(cmd, "output", completeFormat)
	complete(cmd, "state", completeWords(executionStates()...))
	cmd.AddCommand(newExecutionsStartCommand(env), newExecutionsShowCommand(env), newExecutionsCancelCommand(env))
	return cmd
}

func runExecutions(ctx context.Context, env *Env, opts executionsOptions, name string) error {
	if opts.state != "" && !slices.Contains(executionStates(), opts.state) {
		return usage("--state %s: want one of %s", opts.state, strings.Join(executionStates(), ", "))
	}
	if opts.limit < 0 {
		return usage("--limit %d: want 0 or more", opts.limit)
	}
	request := client.ExecutionsRequest{App: name, State: opts.state, Limit: opts.limit}
	if strings.Contains(name, "/") {
		var err error
		if request.App, request.Workflow, err = partOf(name, "WORKFLOW"); err != nil {
			return err
		}
	}
	stop := env.reportIfSlow("reading the logs of the executions")
	executions, err := env.client().Executions(ctx, request)
	stop()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, e := range executions {
		rows = append(rows, []string{e.ID, e.Workflow, e.State, orDash(string(e.Node)), e.Started.Local().Format(time.DateTime), tookText(e)})
	}
	return opts.output.print(env, executions, []string{"EXECUTION", "WORKFLOW", "STATE", "NODE", "STARTED", "TOOK"}, rows)
}

func tookText(e client.Execution) string {
	if e.Ended.IsZero() {
		return "-"
	}
	return e.Ended.Sub(e.Started).Round(10 * time.Microsecond).String()
}

// ---- cancel

func newExecutionsCancelCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel an execution of a workflow",
		Long: `Cancel an execution of a workflow: running steps are stopped, and no further step starts.
An execution that has ended stays as it is.`,
		Example:           "  outboard executions cancel thumbnails/0d8b1c6tq4",
		Args:              oneArg("name one execution; `outboard executions --state running` lists the running ones"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runExecutionsCancel(cmd.Context(), env, args[0]) },
		ValidArgsFunction: env.firstArg(executionWords),
	}
}

func runExecutionsCancel(ctx context.Context, env *Env, id string) error {
	id, err := qualifiedID(ctx, env.client(), id)
	if err != nil {
		return err
	}
	e, err := env.client().CancelExecution(ctx, id)
	if err != nil {
		return err
	}
	printSafe(env.Stderr, "execution %s: %s\n", e.ID, e.State)
	return nil
}
