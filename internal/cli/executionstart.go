package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type executionsStartOptions struct {
	output format
	data   string
	id     string
	wait   bool
}

func newExecutionsStartCommand(env *Env) *cobra.Command {
	var opts executionsStartOptions
	cmd := &cobra.Command{
		Use:   "start APP/WORKFLOW",
		Short: "Start an execution of a workflow",
		Long: `Start an execution of a workflow, and print its id. With --wait, wait for its end and print
its output instead; the exit status reports whether it completed.

Once recorded, an execution runs to its end even if its node fails. With --id the command is
idempotent: it starts nothing when an execution with that id exists.`,
		Example: `  outboard executions start thumbnails/thumbnail -d @input.json
  outboard executions start thumbnails/thumbnail -d '{"photo":"a.jpg"}' --wait
  outboard executions start bank/transfer -d @transfer.json --id transfer-4711`,
		Args: oneArg("name one workflow, as APP/WORKFLOW; `outboard workflows` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExecutionsStart(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: env.firstArg(workflowWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVarP(&opts.data, "input", "d", "", "the input, in JSON; "+dataUsage)
	cmd.Flags().StringVar(&opts.id, "id", "", "the `ID` of the execution (default a new one)")
	cmd.Flags().BoolVar(&opts.wait, "wait", false, "wait for the end, and print the output")
	complete(cmd, "output", completeFormat)
	complete(cmd, "id", cobra.NoFileCompletions)
	return cmd
}

func runExecutionsStart(ctx context.Context, env *Env, opts executionsStartOptions, name string) error {
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
		return completionError(e)
	}
	return nil
}

// readInput reads the input of a workflow, and refuses text that is not JSON.
func readInput(env *Env, data string) ([]byte, error) {
	input, err := readData(env, data)
	switch {
	case err != nil:
		return nil, err
	case len(input) > 0 && !json.Valid(input) && data != "" && fileExists(data):
		return nil, usage("-d %s: the text is not JSON; for the content of the file write -d @%s", data, data)
	case len(input) > 0 && !json.Valid(input):
		return nil, usage("-d: the input of a workflow must be JSON")
	}
	return input, nil
}

func printStarted(env *Env, wait bool, e client.Execution) error {
	if !wait {
		_, err := fmt.Fprintln(env.Stdout, e.ID)
		return err
	}
	printSafe(env.Stderr, "execution %s: %s\n", e.ID, e.State)
	if len(e.Output) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(jsonWriter{env.Stdout}, "%s\n", e.Output)
	return err
}

// completionError returns nil for an execution that completed, else an error with its state.
func completionError(e client.Execution) error {
	switch {
	case e.State == client.StateCompleted:
		return nil
	case e.Fault != nil:
		return &statusError{status: statusOther, err: fmt.Errorf("execution %s is faulted: %s", e.ID, faultText(e.Fault))}
	}
	return &statusError{status: statusOther, err: fmt.Errorf("execution %s is %s; `outboard executions show %s` shows its steps", e.ID, e.State, e.ID)}
}
