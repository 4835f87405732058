// Command attack carries out every attack that is known against Outboard and writes what
// held into docs/bench/isolation.md and isolation.json.
//
// An attack is a test of the package that it is made on, so that `make test` runs it too;
// attacks.go says which attacker tries what on which victim. Attackers and victims are
// paired after Husky (NSDI'23).
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	out := flag.String("out", "docs/bench", "the folder of the report")
	only := flag.String("only", "", "a regular expression: carry out only attacks whose test matches")
	os.Exit(paired.Main(func(ctx context.Context) error { return run(ctx, *out, *only) }))
}

// A Verdict says what became of an attack.
type Verdict string

// The verdicts. A test that fails, or that did not run, is open.
const (
	Held    Verdict = "held"
	Bounded Verdict = "bounded"
	Open    Verdict = "open"
)

// An Attack is one thing that an attacker tries on a victim.
type Attack struct {
	Attacker string `json:"attacker"`
	Victim   string `json:"victim"`
	// What is tried, and for a bounded one up to which bound it succeeds.
	What string `json:"what"`
	// Test is the test that carries it out, in the package at Dir.
	Dir  string `json:"dir"`
	Test string `json:"test"`
	// Verdict is what the test shows when it passes. An open attack has no test.
	Verdict Verdict `json:"verdict"`
}

// A report is what isolation.json holds.
type report struct {
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Attacks []Attack  `json:"attacks"`
}

func run(ctx context.Context, out, only string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	tried := slices.DeleteFunc(attacks(), func(a Attack) bool { return !match.MatchString(a.Test) })
	failed := 0
	for _, dir := range packages(tried) {
		passed, err := runTests(ctx, dir, testsOf(tried, dir))
		if err != nil {
			return err
		}
		for i := range tried {
			if a := &tried[i]; a.Dir == dir && a.Test != "" && !passed[a.Test] {
				fmt.Fprintf(os.Stderr, "open: %s on %s: %s (%s in %s)\n", a.Attacker, a.Victim, a.What, a.Test, a.Dir)
				a.Verdict = Open
				failed++
			}
		}
	}
	if err := write(ctx, out, tried); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d attacks succeeded or were not carried out", failed)
	}
	return nil
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

// runTests runs the named tests of the package at dir and returns those that passed. Their
// output goes to standard error when one fails.
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

func write(ctx context.Context, dir string, tried []Attack) error {
	slices.SortStableFunc(tried, func(a, b Attack) int {
		return cmp.Or(strings.Compare(a.Attacker, b.Attacker), strings.Compare(a.Victim, b.Victim))
	})
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	r := report{Machine: paired.Machine(), Commit: strings.TrimSpace(string(commit)), Date: time.Now().UTC(), Attacks: tried}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "isolation.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "isolation.md"), []byte(r.markdown()), 0o644)
}

func (r report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# isolation\n\n%s; commit %s; %s.\n\n", r.Machine, r.Commit, r.Date.Format(time.DateOnly))
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
	return b.String()
}
