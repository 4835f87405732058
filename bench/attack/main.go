// Command attack carries out every known attack against Outboard and writes the verdicts to
// docs/bench/isolation.md and isolation.json.
//
// An attack is a test of the attacked package, so that `make test` runs it too; attacks.go lists
// which attacker tries which attack on which victim. Attackers and victims are paired after Husky
// (NSDI'23).
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

func main() {
	if status, ok := role(); ok {
		os.Exit(status)
	}
	b := &bench{}
	b.Quick = os.Getenv("BENCH_QUICK") != ""
	flag.StringVar(&b.Out, "out", "docs/bench", "the folder of the report")
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program that victims and attackers use")
	flag.StringVar(&b.only, "only", "", "a regular expression: carry out only attacks whose test matches, and measure nothing")
	flag.BoolVar(&b.measureOnly, "measure", false, "measure only, and keep the attacks of the report that is there")
	flag.BoolVar(&b.attackOnly, "attacks", false, "carry out the attacks only, and keep the measurements of the report that is there")
	flag.StringVar(&b.beside, "beside", "", "a regular expression: measure victims beside attackers on what matches, 'session' for all that are beside sessions, print it, and write nothing")
	os.Exit(paired.Main(b.run))
}

// bench carries out attacks and measures the cost of isolation, and its benefit for victims.
type bench struct {
	paired.Run
	binary, only, beside    string
	measureOnly, attackOnly bool
}

// A Verdict is the outcome of an attack.
type Verdict string

// The verdicts. An attack whose test fails, or did not run, is open.
const (
	Held    Verdict = "held"
	Bounded Verdict = "bounded"
	Open    Verdict = "open"
)

// An Attack is one attempt of an attacker on a victim.
type Attack struct {
	Attacker string `json:"attacker"`
	Victim   string `json:"victim"`
	// What describes the attempt and, for a bounded attack, the bound up to which it succeeds.
	What string `json:"what"`
	// Test is the test that carries out the attack, in the package at Dir.
	Dir  string `json:"dir"`
	Test string `json:"test"`
	// Verdict is the verdict if the test passes. An open attack has no test.
	Verdict Verdict `json:"verdict"`
}

// A report is the content of isolation.json.
type report struct {
	origin

	Attacks []Attack `json:"attacks"`
	// Measured is the origin of Rows, which are the measurements.
	Measured origin       `json:"measured"`
	Rows     []paired.Row `json:"rows"`
	// Note says what is missing in Rows.
	Note string `json:"note,omitempty"`
}

// An origin says where, of what and when a part of a report is.
type origin struct {
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
}

func originNow(ctx context.Context) origin {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return origin{paired.Machine(), strings.TrimSpace(string(commit)), time.Now().UTC()}
}

func (o origin) String() string {
	return fmt.Sprintf("%s; commit %s; %s", o.Machine, o.Commit, o.Date.Format(time.DateOnly))
}

func (b *bench) run(ctx context.Context) error {
	switch {
	case b.beside != "":
		return b.printBeside(ctx)
	case b.only != "":
		_, err := carryOut(ctx, b.only)
		return err // a subset is no report
	}
	var r report
	if b.measureOnly || b.attackOnly {
		if err := r.read(b.Out); err != nil {
			return err
		}
	}
	var failed error
	if !b.measureOnly {
		r.Attacks, failed = carryOut(ctx, "")
		r.origin = originNow(ctx)
	}
	if !b.attackOnly && ctx.Err() == nil {
		failed = errors.Join(failed, b.measure(ctx))
		r.Rows, r.Measured, r.Note = b.Report.Rows, originNow(ctx), ""
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed, r.write(b.Out))
}

// measure measures the cost of a worker's isolation, and victims beside attackers.
func (b *bench) measure(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "isolation")
	if err != nil {
		return err
	}
	return errors.Join(b.sandboxCost(ctx), b.victims(ctx), b.functions(ctx), end())
}

// printBeside measures victims beside the chosen attackers.
func (b *bench) printBeside(ctx context.Context) (err error) {
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "isolation")
	if err != nil {
		return err
	}
	err = errors.Join(b.victims(ctx), b.functions(ctx), end())
	for _, row := range b.Report.Rows {
		fmt.Fprintf(os.Stdout, "%s: %.0f %s, alone %.0f: %.1f times\n", row.Name, row.Value, row.Unit, row.Reference, row.Ratio)
	}
	return err
}

// carryOut carries out the attacks whose test matches. The error counts the attacks that succeeded.
func carryOut(ctx context.Context, only string) ([]Attack, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	tried := slices.DeleteFunc(attacks(), func(a Attack) bool { return !match.MatchString(a.Test) })
	failed := 0
	for _, dir := range packages(tried) {
		passed, err := runTests(ctx, dir, testsOf(tried, dir))
		if err != nil {
			return tried, err
		}
		for i := range tried {
			if a := &tried[i]; a.Dir == dir && a.Test != "" && !passed[a.Test] {
				fmt.Fprintf(os.Stderr, "open: %s on %s: %s (%s in %s)\n", a.Attacker, a.Victim, a.What, a.Test, a.Dir)
				a.Verdict = Open
				failed++
			}
		}
	}
	if failed > 0 {
		return tried, fmt.Errorf("%d attacks succeeded or were not carried out", failed)
	}
	return tried, nil
}

// read reads the existing report.
func (r *report) read(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "isolation.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, r)
}

func packages(tried []Attack) []string {
	var dirs []string
	for i := range tried {
		if tried[i].Test != "" {
			dirs = append(dirs, tried[i].Dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func testsOf(tried []Attack, dir string) []string {
	var names []string
	for i := range tried {
		if tried[i].Dir == dir && tried[i].Test != "" {
			names = append(names, tried[i].Test)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// runTests runs the named tests of the package at dir and returns the tests that passed. The output
// of all goes to standard error if one of them fails.
func runTests(ctx context.Context, dir string, names []string) (passed map[string]bool, err error) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", dir, strings.Join(names, ", "))
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout", "10m", "-run", "^("+strings.Join(names, "|")+")$", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "OUTBOARD_TEST_REQUIRE=all", "OUTBOARD_ATTACK_SESSIONS=1000")
	text, runErr := cmd.Output()
	passed = map[string]bool{}
	var said strings.Builder
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		var event struct{ Action, Test, Output string }
		if err := lines.Decode(&event); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go test in %s: %w: %s", dir, err, text)
		}
		said.WriteString(event.Output)
		if event.Action == "pass" {
			passed[event.Test] = true
		}
	}
	if runErr != nil {
		fmt.Fprintln(os.Stderr, said.String())
	}
	return passed, ctx.Err()
}

func (r *report) write(dir string) error {
	slices.SortStableFunc(r.Attacks, func(a, b Attack) int {
		return cmp.Or(strings.Compare(a.Attacker, b.Attacker), strings.Compare(a.Victim, b.Victim))
	})
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "isolation.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "isolation.md"), []byte(r.markdown()), 0o644)
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# isolation\n\n%v.\n\n", r.origin)
	b.WriteString("Each attack is a test that carries it out. **Held**: it was refused. **Bounded**: it succeeds up to the\n" +
		"bound that is named. **Open**: it succeeds, or nothing stops it yet.\n\n")
	b.WriteString("| attacker | victim | what is tried | verdict | test |\n|---|---|---|---|---|\n")
	for i := range r.Attacks {
		a := &r.Attacks[i]
		test := ""
		if a.Test != "" {
			test = fmt.Sprintf("`%s` in `%s`", a.Test, a.Dir)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", a.Attacker, a.Victim, a.What, a.Verdict, test)
	}
	if len(r.Rows) > 0 {
		b.WriteString("\n## What it costs, and what it is worth\n\nMedians of runs taken in turn with the reference. A victim has the attacker's weight: beside one\n" +
			"attacker its fair share is half of the device or of the processors, and twice the time. Attackers of\n" +
			"functions are 64 clients of another tenant's app, of low priority, since clients are elsewhere.\n\n")
		fmt.Fprintf(&b, "%v.%s\n\n", r.Measured, r.Note)
		paired.WriteRows(&b, r.Rows)
	}
	return b.String()
}
