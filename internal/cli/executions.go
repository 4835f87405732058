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
  outboard executions -o json`,
		Args: atMostOne("name one app or workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExecutions(cmd.Context(), env, opts, first(args))
		},
		ValidArgsFunction: env.firstArg(both(appWords, workflowWords)),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.state, "state", "", "only those in `STATE`: "+strings.Join(executionStates(), ", "))
	cmd.Flags().IntVar(&opts.limit, "limit", 100, "at most so many, 0 for all")
	complete(cmd, "output", completeFormat)
	complete(cmd, "state", completeWords(executionStates()...))
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
	stop := env.slowly("reading the logs of the executions")
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

// ---- execution

type executionOptions struct {
	output format
	why    bool
}

func newExecutionCommand(env *Env) *cobra.Command {
	var opts executionOptions
	cmd := &cobra.Command{
		Use:   "execution ID",
		Short: "Show an execution: every step, when, where, how long, how many bytes",
		Long: `Show an execution: its steps in the order in which they began, when (from the execution's
start) and where each ran, how long it waited after all that it needed was there, how long
it took, how many bytes it was handed and handed on by pointer and by copy, and what it
imported at which cost. With --why, the reasons of the placement.`,
		Example: `  outboard execution thumbnails/0d8b1c6tq4
  outboard execution thumbnails/0d8b1c6tq4 --why
  outboard execution thumbnails/0d8b1c6tq4 -o json`,
		Args:              oneArg("name one execution; `outboard executions` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runExecution(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(executionWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&opts.why, "why", false, "say why each step ran where and when it did")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runExecution(ctx context.Context, env *Env, opts executionOptions, id string) error {
	id, err := wholeID(ctx, env.client(), id)
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

// wholeID finds the app of an execution where it was left out.
func wholeID(ctx context.Context, c *client.Client, id string) (string, error) {
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
	fmt.Fprintln(env.Stdout, text)
	for _, n := range e.Nodes {
		fmt.Fprintf(env.Stdout, "  %s on %s: %s\n", since(e, n.Since), n.Node, n.Reason)
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
		fmt.Fprintf(env.Stdout, "\noutput: %s\n", e.Output)
	}
	if e.Fault != nil {
		fmt.Fprintf(env.Stdout, "\nfault: %s\n", faultText(e.Fault))
	}
	return nil
}

// since is a time from an execution's start.
func since(e client.Execution, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return "+" + max(t.Sub(e.Started), 0).Round(10*time.Microsecond).String()
}

func printSteps(env *Env, e client.Execution) error {
	table := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tWHAT\tTRY\tSTATE\tNODE\tBEGAN\tWAITED\tTOOK\tSTART\tPOINTER\tCOPIED\tIMPORTS")
	for _, s := range e.Steps {
		row := []string{
			stepName(s), what(s), strconv.Itoa(max(s.Attempt, 1)), s.State, orDash(string(s.Node)), since(e, beganAt(s)), waited(s),
			tookOf(s), orDash(s.Start), bytesText(s.Pointer), bytesText(s.Copied), orDash(importsText(s.Imports)),
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
		if s.Fault != nil {
			// The table's columns end here: a fault may be long.
			if err := table.Flush(); err != nil {
				return err
			}
			fmt.Fprintln(env.Stdout, "  "+faultText(s.Fault))
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

func what(s client.Step) string {
	if s.Function != "" {
		return s.Kind + " " + s.Function
	}
	return orDash(s.Kind)
}

// beganAt is when a step began, or could have: of one that has not ended that is all that is
// recorded.
func beganAt(s client.Step) time.Time {
	if s.Started.IsZero() {
		return s.Ready
	}
	return s.Started
}

// tookOf is how long a step took, or for how long it runs.
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
		fmt.Fprintf(env.Stdout, "why: %s%s\n", subject, r.Text)
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

// ---- cancel

func newCancelCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "End an execution of a workflow",
		Long: `End an execution of a workflow: steps under way are told to end, and none follows them.
One that has ended already stays as it is.`,
		Example:           "  outboard cancel thumbnails/0d8b1c6tq4",
		Args:              oneArg("name one execution; `outboard executions --state running` lists those that run"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runCancel(cmd.Context(), env, args[0]) },
		ValidArgsFunction: env.firstArg(executionWords),
	}
}

func runCancel(ctx context.Context, env *Env, id string) error {
	id, err := wholeID(ctx, env.client(), id)
	if err != nil {
		return err
	}
	e, err := env.client().CancelExecution(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "execution %s: %s\n", e.ID, e.State)
	return nil
}
