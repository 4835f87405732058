package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type logsOptions struct {
	output format
	follow bool
	lines  int
}

func newLogsCommand(env *Env) *cobra.Command {
	var opts logsOptions
	cmd := &cobra.Command{
		Use:   "logs APP[/FUNCTION] | JOB",
		Short: "Show the output of an app's functions, and how each call ended, or that of a job's ranks",
		Long: `Show the standard output and error of an app's functions on all nodes, and how each of their
calls ended. The columns are time, node, function, call, stream and text. With -o json
each line is an object. A node that does not answer is named in a warning.

Of a training job (` + "`outboard jobs`" + `) it shows the lines of all ranks, each with its rank,
on the node that the job was submitted to.`,
		Example: `  outboard logs shop
  outboard logs shop/cart -f
  outboard logs shop -n 0 -o json
  outboard logs job-k3ab72xq -f`,
		Args:              oneArg("name one app or function, as APP or APP/FUNCTION"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runLogs(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(joinWords(joinWords(appWords, functionWords), jobWordsIfAny)),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&opts.follow, "follow", "f", false, "print further lines as they come, until interrupted")
	cmd.Flags().IntVarP(&opts.lines, "lines", "n", 100, "begin with the newest `N` lines, 0 for all that are kept")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runLogs(ctx context.Context, env *Env, opts logsOptions, name string) error {
	if opts.lines < 0 {
		return usage("--lines %d: want 0 or more", opts.lines)
	}
	var noJob error
	if strings.HasPrefix(name, jobPrefix) {
		if _, noJob = env.client().Job(ctx, name); noJob == nil {
			return runJobLogs(ctx, env, opts, name)
		}
	}
	request := client.LogsRequest{App: name, Lines: opts.lines, Follow: opts.follow}
	if strings.Contains(name, "/") {
		var err error
		if request.App, request.Function, err = partOf(name, "FUNCTION"); err != nil {
			return err
		}
	}
	encoder := newJSONEncoder(env.Stdout)
	err := env.client().Logs(ctx, request, func(l client.LogLine) error {
		if l.Stream == client.WarningStream {
			_, err := fmt.Fprintf(env.Stderr, "outboard: warning: %s\n", clean(l.Text))
			return err
		}
		if opts.output == "json" {
			return encoder.Encode(l)
		}
		err := writeSafe(env.Stdout, "%s\n", logText(l))
		return err
	})
	switch {
	case opts.follow && errors.Is(err, context.Canceled):
		return nil // an interrupt is the regular end of --follow
	case noJob != nil && outboard.KindOf(err) == outboard.NotFound:
		return noJob // there is no such app either
	}
	return err
}

// jobPrefix is the prefix of a training job's ID. An app's name may begin with it too.
const jobPrefix = "job-"

func runJobLogs(ctx context.Context, env *Env, opts logsOptions, id string) error {
	encoder := newJSONEncoder(env.Stdout)
	err := env.client().JobLogs(ctx, id, opts.lines, opts.follow, func(e client.JobEvent) error {
		if opts.output == "json" && e.Line != nil {
			return encoder.Encode(e.Line)
		}
		if opts.output != "json" {
			env.printJobLine(e.Line, false)
		}
		return nil
	})
	if opts.follow && errors.Is(err, context.Canceled) {
		err = nil // an interrupt is the regular end of --follow
	}
	return err
}

func logText(l client.LogLine) string {
	columns := []string{l.Time.Local().Format("15:04:05.000"), orDash(string(l.Node)), orDash(l.Function), orDash(l.Call), orDash(l.Stream)}
	if l.Execution != "" {
		columns = append(columns, strings.TrimSuffix(l.Execution+" "+l.Step, " "))
	}
	if text := strings.TrimRight(l.Text, "\n"); text != "" {
		columns = append(columns, strings.ReplaceAll(text, "\n", "\n    "))
	}
	if l.Stream == "call" {
		columns = append(columns, callText(l))
	}
	return strings.TrimRight(strings.Join(columns, "  "), " ")
}

// callText describes the result of a call.
func callText(l client.LogLine) string {
	var parts []string
	if l.Trigger != "" {
		parts = append(parts, "by "+l.Trigger)
	}
	if l.Status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", l.Status))
	}
	if l.Took != 0 {
		parts = append(parts, "in "+time.Duration(l.Took).Round(time.Microsecond).String())
	}
	if l.Fuel != 0 {
		parts = append(parts, fmt.Sprintf("fuel %d", l.Fuel))
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
