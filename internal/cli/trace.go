package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/accel/trace/report"
)

func newTraceCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Summarise and convert recordings of programs",
		Long: `Summarise and convert recordings of programs.

` + "`outboard run --trace FILE -- PROGRAM`" + ` makes one; docs/traces.md describes its format.`,
		Example: `  outboard trace show out.trace
  outboard trace export out.trace --format csv >out.csv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTraceShowCommand(env), newTraceExportCommand(env))
	return cmd
}

type traceShowOptions struct {
	output    format
	functions int
}

// nameTrace says which argument the commands below trace have.
const nameTrace = "name one trace: a file that `outboard run --trace FILE -- PROGRAM` made"

func newTraceShowCommand(env *Env) *cobra.Command {
	var opts traceShowOptions
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show what a recorded program did, and what cost most",
		Long: `Show what a recorded program did, and what cost most.

"gap" is the program's own time between calls, "blocked" the time in which calls waited, "device"
the time in which the device executed commands. Phases: set-up lasts until the first command,
the run until the last one, or until the program has waited for it.`,
		Example: `  outboard trace show out.trace
  outboard trace show out.trace --functions 0      # all functions
  outboard trace show out.trace -o json`,
		Args: oneArg(nameTrace),
		RunE: func(cmd *cobra.Command, args []string) error { return runTraceShow(cmd.Context(), env, opts, args[0]) },
	}
	cmd.ValidArgsFunction = completeFiles("trace")
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&opts.functions, "functions", 12, "how many functions are shown; 0 means all")
	complete(cmd, "output", completeFormat)
	return cmd
}

// missingTrace adds to the error of opening a trace how one is made, if there is none.
func missingTrace(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: make one with `outboard run --trace FILE -- PROGRAM`", err)
	}
	return err
}

// openTrace opens a trace, which is read until ctx is done. The caller closes the file.
func openTrace(ctx context.Context, path string) (*trace.Reader, *os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, missingTrace(err)
	}
	r, err := trace.NewReader(interruptible{f, ctx.Err})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return r, f, nil
}

func runTraceShow(ctx context.Context, env *Env, opts traceShowOptions, path string) error {
	if opts.functions < 0 {
		return usage("--functions %d: want 0 or more", opts.functions)
	}
	r, f, err := openTrace(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := report.Summarize(r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if opts.output == "json" {
		return opts.output.print(env, s, nil, nil)
	}
	return writeSummary(env, s, opts.functions)
}

// writeSummary writes a summary for people.
func writeSummary(env *Env, s *report.Summary, functions int) error {
	where := "on leased devices"
	if s.Mode == trace.Local {
		where = "on this machine's own drivers"
	}
	out := env.Stdout
	fmt.Fprintf(out, "%s ran %s %s: %s\n", clean(s.Program), duration(s.Duration), where, clean(strings.Join(s.Devices, ", ")))
	fmt.Fprintf(out, "%d calls by %s in %s, %s: %d answered locally, %d early, %d waited for\n",
		s.Total.Calls, plural(s.Threads, "thread"), plural(s.Processes, "process"), plural(s.Queues, "queue"), s.Total.Local, s.Total.Early, s.Total.Waited)
	fmt.Fprintf(out, "%v to the device, %v back; device busy %s\n", outboard.Bytes(s.Total.Forward), outboard.Bytes(s.Total.Backward), duration(s.Total.Device))
	if s.Truncated {
		fmt.Fprintln(out, "The trace was cut off: what follows was before.")
	}
	if s.Lost > 0 {
		fmt.Fprintf(out, "%d calls are missing: they found no room.\n", s.Lost)
	}
	fmt.Fprintln(out)
	var rows [][]string
	for _, p := range s.Phases {
		rows = append(rows, append([]string{p.Name, duration(p.End - p.Begin)}, totals(&p.Totals)...))
	}
	titles := []string{"CALLS", "IN CALLS", "BLOCKED", "DEVICE", "TO DEVICE", "BACK"}
	if err := writeTable(out, "", append([]string{"PHASE", "TIME"}, titles...), rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	rows = nil
	for i, f := range s.Functions {
		if functions > 0 && i == functions {
			break
		}
		rows = append(rows, append([]string{f.Name, duration(f.Longest)}, totals(&f.Totals)...))
	}
	return writeTable(out, "", append([]string{"FUNCTION", "LONGEST"}, titles...), rows)
}

func totals(t *report.Totals) []string {
	return []string{
		strconv.FormatUint(t.Calls, 10), duration(t.InCalls), duration(t.Blocked), duration(t.Device),
		outboard.Bytes(t.Forward).String(), outboard.Bytes(t.Backward).String(),
	}
}

// duration formats ns with three significant digits.
func duration(ns int64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		switch {
		case d >= 100*unit:
			return d.Round(unit).String()
		case d >= 10*unit:
			return d.Round(unit / 10).String()
		case d >= unit:
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

type traceExportOptions struct {
	format string
	file   string
}

func newTraceExportCommand(env *Env) *cobra.Command {
	var opts traceExportOptions
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Convert a recording for ui.perfetto.dev, or into a table",
		Long: `Convert a recording for ui.perfetto.dev, or into a table.

perfetto is JSON of the Trace Event Format: drag the file onto https://ui.perfetto.dev, which shows
it in the browser without sending it anywhere. csv has one line for each call.`,
		Example: `  outboard trace export out.trace --format perfetto --file out.json
  outboard trace export out.trace --format csv >out.csv`,
		Args: oneArg(nameTrace),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runTraceExport(cmd.Context(), env, opts, args[0])
		},
	}
	cmd.ValidArgsFunction = completeFiles("trace")
	cmd.Flags().StringVar(&opts.format, "format", "perfetto", "perfetto or csv")
	cmd.Flags().StringVar(&opts.file, "file", "", "write into `FILE` instead of the standard output")
	complete(cmd, "format", completeWords("perfetto", "csv"))
	return cmd
}

func runTraceExport(ctx context.Context, env *Env, opts traceExportOptions, path string) error {
	convert := map[string]func(io.Writer, *trace.Reader) error{"perfetto": report.Perfetto, "csv": report.CSV}[opts.format]
	if convert == nil {
		return usage("--format %s: want perfetto or csv", opts.format)
	}
	r, f, err := openTrace(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	write := func(to io.Writer) error {
		out := bufio.NewWriter(to)
		if err := convert(out, r); err != nil {
			return err
		}
		if r.Truncated() {
			printSafe(env.Stderr, "outboard: %s was cut off: its calls until then were converted\n", path)
		}
		return out.Flush()
	}
	if opts.file == "" {
		return write(env.Stdout)
	}
	if isSameFile(f, opts.file) {
		return usage("--file %s is the trace itself: name another file", opts.file)
	}
	file, err := os.Create(opts.file)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

func isSameFile(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(have, other)
}
