package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type workflowsOptions struct{ output format }

func newWorkflowsCommand(env *Env) *cobra.Command {
	var opts workflowsOptions
	cmd := &cobra.Command{
		Use:   "workflows [APP]",
		Short: "List the workflows of the apps, and how their executions stand",
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
	stop := env.slowly("reading the logs of the executions")
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

// ---- run-workflow

type runWorkflowOptions struct {
	output format
	data   string
	id     string
	wait   bool
}

func newRunWorkflowCommand(env *Env) *cobra.Command {
	var opts runWorkflowOptions
	cmd := &cobra.Command{
		Use:   "run-workflow APP/WORKFLOW",
		Short: "Start an execution of a workflow",
		Long: `Start an execution of a workflow, and write its name. With --wait, wait for its end and
write its output instead; the exit status says whether it completed.

An execution that is recorded ends, whatever happens to the node. With --id the command
may be repeated: it starts nothing when there is an execution of that name.`,
		Example: `  outboard run-workflow thumbnails/thumbnail -d @input.json
  outboard run-workflow thumbnails/thumbnail -d '{"photo":"a.jpg"}' --wait
  outboard run-workflow bank/transfer -d @transfer.json --id transfer-4711`,
		Args: oneArg("name one workflow, as APP/WORKFLOW; `outboard workflows` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRunWorkflow(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: env.firstArg(workflowWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVarP(&opts.data, "input", "d", "", "the input, in JSON; "+dataUsage)
	cmd.Flags().StringVar(&opts.id, "id", "", "the `NAME` of the execution (default a new one)")
	cmd.Flags().BoolVar(&opts.wait, "wait", false, "wait for the end, and write the output")
	complete(cmd, "output", completeFormat)
	complete(cmd, "id", cobra.NoFileCompletions)
	return cmd
}

func runRunWorkflow(ctx context.Context, env *Env, opts runWorkflowOptions, name string) error {
	app, workflow, err := partOf(name, "WORKFLOW")
	if err != nil {
		return err
	}
	input, err := readInput(env, opts.data)
	if err != nil {
		return err
	}
	e, err := env.client().RunWorkflow(ctx, client.RunRequest{App: app, Workflow: workflow, Input: input, ID: opts.id, Wait: opts.wait})
	if err != nil {
		return err
	}
	if opts.output == "json" {
		if err := opts.output.print(env, e, nil, nil); err != nil {
			return err
		}
	} else if err := printStarted(env, opts.wait, e); err != nil {
		return err
	}
	if opts.wait {
		return ended(e)
	}
	return nil
}

// readInput reads JSON, and says early what is none.
func readInput(env *Env, data string) ([]byte, error) {
	input, err := readData(env, data)
	switch {
	case err != nil:
		return nil, err
	case len(input) > 0 && !json.Valid(input) && data != "" && fileExists(data):
		return nil, usage("-d %s: this is no JSON; for what is in the file write -d @%s", data, data)
	case len(input) > 0 && !json.Valid(input):
		return nil, usage("-d: the input of a workflow is JSON, and this is none")
	}
	return input, nil
}

func printStarted(env *Env, wait bool, e client.Execution) error {
	if !wait {
		_, err := fmt.Fprintln(env.Stdout, e.ID)
		return err
	}
	fmt.Fprintf(env.Stderr, "execution %s: %s\n", e.ID, e.State)
	if len(e.Output) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(env.Stdout, "%s\n", e.Output)
	return err
}

// ended makes an end that is no success an error.
func ended(e client.Execution) error {
	switch {
	case e.State == client.StateCompleted:
		return nil
	case e.Fault != nil:
		return &statusError{status: statusOther, err: fmt.Errorf("execution %s is faulted: %s", e.ID, faultText(e.Fault))}
	}
	return &statusError{status: statusOther, err: fmt.Errorf("execution %s is %s; `outboard execution %s` shows its steps", e.ID, e.State, e.ID)}
}
