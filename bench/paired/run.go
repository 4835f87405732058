package paired

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A Run is one run of a benchmark command: its sections, which are measured in order, and
// their report.
type Run struct {
	// Out is the folder of the report, "" for none. Only, a regular expression, selects the sections
	// whose names match it; such a part writes no report unless the report is merged.
	Out, Only string
	// Budget is the time that the run may take; 0 is no limit. A section that would take longer than
	// what is left is not measured.
	Budget time.Duration
	// Quick requests few and short turns.
	Quick bool
	// Profiles is a folder for CPU profiles, "" for none.
	Profiles string
	// Dir is the folder of all files of the run. Its path is short, for sockets.
	Dir    string
	Report Report

	section  string
	profiled []string
	began    time.Time
	// merge is whether the report keeps results of earlier runs; timings and missing are those of
	// the section that is being measured.
	merge   bool
	timings []Timing
	missing []string
}

// A Section is a part of a run.
type Section struct {
	Name string
	Run  func(context.Context) error
	// Setup sections run regardless of Only: the others use their results.
	Setup bool
	// Estimate returns about how long the section takes; nil: no time that matters.
	Estimate func() time.Duration
}

// Flags declares the flags that all commands have.
func (r *Run) Flags() {
	r.Quick = os.Getenv("BENCH_QUICK") != ""
	flag.StringVar(&r.Out, "out", "docs/bench", "where the report goes")
	flag.StringVar(&r.Only, "only", "", "a regular expression: measure only the sections whose names match it")
}

// BudgetFlag declares the flag of commands whose sections have estimates.
func (r *Run) BudgetFlag() {
	flag.DurationVar(&r.Budget, "budget", 0, "the time that the run may take, such as 30m; sections that do not fit are left out and named; 0: no limit")
}

// ProfileFlag declares the flag of commands that can write profiles.
func (r *Run) ProfileFlag() {
	flag.StringVar(&r.Profiles, "profile", "", "a folder for CPU profiles of what is measured, whose heads are printed")
}

// Main parses the command line, runs do until it returns or is interrupted, and returns the exit
// status.
func Main(do func(context.Context) error) (status int) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// Begin creates the run's folders and the head of the report. end removes the temporary ones.
func (r *Run) Begin(ctx context.Context, plane string, notes ...string) (end func() error, err error) {
	r.began = time.Now()
	r.Report = Report{Plane: plane, Machine: Machine(), Commit: commit(ctx), Date: time.Now().UTC(), Quick: r.Quick, Notes: notes}
	if r.Profiles != "" {
		if r.Profiles, err = filepath.Abs(r.Profiles); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(r.Profiles, 0o755); err != nil {
			return nil, err
		}
	}
	r.Dir, err = os.MkdirTemp("", "ob")
	return func() error { return os.RemoveAll(r.Dir) }, err
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Measure runs the sections, and returns the errors of all at the end. The report is written after
// each section: an interrupted run has one, too.
func (r *Run) Measure(ctx context.Context, sections []Section) error {
	chosen, err := r.choose(sections)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		if err := r.measure(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
		}
		if r.merge {
			r.Report.arrange(sections)
		}
		errs = append(errs, r.write())
	}
	errs = append(errs, ctx.Err(), r.printProfiles(ctx))
	r.Report.Markdown(os.Stdout)
	return errors.Join(errs...)
}

// measure runs one section, unless the run has too little time left for it.
func (r *Run) measure(ctx context.Context, s Section) error {
	if s.Estimate != nil && s.Estimate() > r.Left() {
		fmt.Fprintf(os.Stderr, "bench: no time for %s: it takes about %v, and %v are left\n", s.Name, s.Estimate().Round(time.Second), max(0, r.Left()).Round(time.Second))
		r.skip(s.Name)
		return nil
	}
	r.section = s.Name
	fmt.Fprintf(os.Stderr, "bench: %s ...\n", s.Name)
	began := time.Now()
	defer func() {
		fmt.Fprintf(os.Stderr, "bench: %s took %v\n", s.Name, time.Since(began).Round(time.Second/10))
	}()
	if r.merge {
		return r.measurePart(func() error { return s.Run(ctx) })
	}
	return s.Run(ctx)
}

// choose returns the sections that Only selects and the Setup sections. It is an error if Only
// selects none.
func (r *Run) choose(sections []Section) (chosen []Section, err error) {
	var names []string
	found := false
	only, err := regexp.Compile(r.Only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	for _, s := range sections {
		names = append(names, s.Name)
		named := only.MatchString(s.Name)
		found = found || named
		if named || s.Setup {
			chosen = append(chosen, s)
		}
	}
	if !found {
		return nil, fmt.Errorf("no section matches %q: there are %s", r.Only, strings.Join(names, ", "))
	}
	return chosen, nil
}

func (r *Run) write() error {
	if r.Only != "" && !r.merge || r.Out == "" {
		return nil
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	return r.Report.Write(r.Out)
}

// Rounds returns the number of turns of each measurement, without the first, which does not count.
func (r *Run) Rounds(full, quick int) int {
	if r.Quick {
		return quick
	}
	return full
}

// Turn returns the duration of a turn.
func (r *Run) Turn(full, quick time.Duration) time.Duration {
	if r.Quick {
		return quick
	}
	return full
}

// Row adds a row to the report.
func (r *Run) Row(row Row) {
	r.Report.Rows = append(r.Report.Rows, row)
	fmt.Fprintf(os.Stderr, "  %-70s %s %s, %s %s, ratio %s (%s)\n", row.Name, Number(row.Value), row.Unit,
		row.ReferenceName, Number(row.Reference), Number(row.Ratio), row.Wanted)
}

// None adds a row of counts whose goal is that all are 0.
func (r *Run) None(name, unit string, values ...float64) {
	row := NewRow(name, unit, "", values, nil, Goal{})
	row.Value = 0
	for _, v := range values {
		row.Value += v
	}
	row.Wanted, row.Holds = "0", row.Value == 0
	r.Row(row)
}

// Because adds the reason to a row that misses its goal.
func (r Row) Because(reason string) Row {
	if !r.Holds {
		r.Reason = reason
	}
	return r
}
