package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type executionsShowOptions struct {
	output format
	why    bool
}

func newExecutionsShowCommand(env *Env) *cobra.Command {
	var opts executionsShowOptions
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show an execution: every step with its node, times and bytes",
		Long: `Show an execution: its steps in the order in which they began, with the time since the
execution's start, the node, the time from readiness to start, the time taken, the bytes
received and passed on by pointer and by copy, and the imports with their cost. With --why,
the reasons of the placement.`,
		Example: `  outboard executions show thumbnails/0d8b1c6tq4
  outboard executions show thumbnails/0d8b1c6tq4 --why
  outboard executions show thumbnails/0d8b1c6tq4 -o json`,
		Args: oneArg("name one execution; `outboard executions` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExecutionsShow(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: env.firstArg(executionWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&opts.why, "why", false, "show the reasons for the node and time of each step")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runExecutionsShow(ctx context.Context, env *Env, opts executionsShowOptions, id string) error {
	id, err := qualifiedID(ctx, env.client(), id)
	if err != nil {
		return err
	}
	e, err := env.client().Execution(ctx, id, opts.why)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, e, nil, nil)
	}
	return printExecution(env, e)
}

// qualifiedID adds the app to an execution's ID that lacks it.
func qualifiedID(ctx context.Context, c *client.Client, id string) (string, error) {
	if strings.Contains(id, "/") || id == "" {
		return id, nil
	}
	found, err := c.Executions(ctx, client.ExecutionsRequest{ID: id})
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", outboard.Errorf(outboard.NotFound, "", "there is no execution %s: `outboard executions` lists them", id)
	case 1:
		return found[0].ID, nil
	}
	var ids []string
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	return "", usage("there are several executions %s: name one of %s", id, strings.Join(ids, ", "))
}

func printExecution(env *Env, e client.Execution) error {
	text := fmt.Sprintf("%s: workflow %s, version %d: %s", e.ID, e.Workflow, e.Version, e.State)
	if !e.Ended.IsZero() {
		text += " after " + tookText(e)
	}
	printSafe(env.Stdout, "%s\n", text)
	for _, n := range e.Nodes {
		printSafe(env.Stdout, "  %s on %s: %s\n", since(e, n.Since), n.Node, n.Reason)
	}
	if len(e.Steps) > 0 {
		fmt.Fprintln(env.Stdout)
		if err := printSteps(env, e); err != nil {
			return err
		}
	}
	if len(e.Why) > 0 {
		fmt.Fprintln(env.Stdout)
		printWhy(env, e.Why)
	}
	if len(e.Output) > 0 {
		printSafe(env.Stdout, "\noutput: %s\n", e.Output)
	}
	if e.Fault != nil {
		printSafe(env.Stdout, "\nfault: %s\n", faultText(e.Fault))
	}
	return nil
}

// since formats a time as the duration from an execution's start.
func since(e client.Execution, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return "+" + max(t.Sub(e.Started), 0).Round(10*time.Microsecond).String()
}

func printSteps(env *Env, e client.Execution) error {
	table := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tTASK\tTRY\tSTATE\tNODE\tBEGAN\tWAITED\tTOOK\tSTART\tPOINTER\tCOPIED\tIMPORTS")
	for _, s := range e.Steps {
		row := []string{
			stepName(s), taskText(s), strconv.Itoa(max(s.Attempt, 1)), s.State, orDash(string(s.Node)), since(e, beganAt(s)), waited(s),
			tookOf(s), orDash(s.Start), bytesText(s.Pointer), bytesText(s.Copied), orDash(importsText(s.Imports)),
		}
		fmt.Fprintln(table, joinCells(row))
		if s.Fault != nil {
			// A fault may be long, so the table is flushed and the columns of later rows are
			// aligned anew.
			if err := table.Flush(); err != nil {
				return err
			}
			printSafe(env.Stdout, "%s\n", "  "+faultText(s.Fault))
		}
	}
	return table.Flush()
}

func stepName(s client.Step) string {
	if s.Iteration > 0 {
		return s.Task + "#" + strconv.Itoa(s.Iteration)
	}
	return s.Task
}

func taskText(s client.Step) string {
	if s.Function != "" {
		return s.Kind + " " + s.Function
	}
	return orDash(s.Kind)
}

// beganAt returns the time at which a step began. For a step that has not ended only the time of
// its readiness is recorded.
func beganAt(s client.Step) time.Time {
	if s.Started.IsZero() {
		return s.Ready
	}
	return s.Started
}

// tookOf formats how long a step took, or has run so far.
func tookOf(s client.Step) string {
	if s.State == client.StateRunning && s.Took == 0 && !s.Ready.IsZero() {
		return ">" + max(time.Since(s.Ready), 0).Round(time.Millisecond).String()
	}
	return short(s.Took)
}

func waited(s client.Step) string {
	if s.Ready.IsZero() || s.Started.IsZero() {
		return "-"
	}
	return max(s.Started.Sub(s.Ready), 0).Round(time.Microsecond).String()
}

func bytesText(b outboard.Bytes) string {
	if b == 0 {
		return "-"
	}
	return b.String()
}

func importsText(imports []client.ImportUse) string {
	var all []string
	for _, i := range imports {
		text := fmt.Sprintf("%s %dx %s", i.Name, i.Calls, short(i.Took))
		if i.Bytes > 0 {
			text += " " + i.Bytes.String()
		}
		if time.Duration(i.Waited) >= time.Millisecond {
			text += " (waited " + short(i.Waited) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func printWhy(env *Env, why []client.Reason) {
	for _, r := range why {
		subject := strings.Join(r.Steps, ", ")
		if r.Node != "" {
			subject = strings.TrimSpace(subject + " on " + string(r.Node))
		}
		if subject != "" {
			subject += ": "
		}
		printSafe(env.Stdout, "why: %s%s\n", subject, r.Text)
	}
}

func faultText(f *client.Fault) string {
	parts := []string{f.Type}
	if f.Status != 0 {
		parts[0] += " (" + strconv.Itoa(f.Status) + ")"
	}
	if f.Instance != "" {
		parts[0] += " at " + f.Instance
	}
	for _, p := range []string{f.Title, f.Detail} {
		if p != "" && !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}
