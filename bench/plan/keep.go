package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// kept are the measurements of one program: what its predictions are made from, and each time that
// they are compared with. A changed model is evaluated on them without running a program.
type kept struct {
	Program   string             `json:"program"`
	Constants overhead.Constants `json:"constants"`
	// Traces are files in the same folder.
	Traces map[trace.Mode][]keptRun `json:"traces"`
	// Local are runs on the machine's own driver, without a recording.
	Local []keptRun  `json:"local"`
	Cases []keptCase `json:"cases"`
}

// keptRun is one run that counts.
type keptRun struct {
	Seconds   float64 `json:"seconds"`
	Disturbed bool    `json:"disturbed,omitempty"`
	Trace     string  `json:"trace,omitempty"`
}

// keptCase are the runs over one link. Link is the network that the emulation was during these runs.
// If Trace is set, it is the recording of the only run, a replay.
type keptCase struct {
	Name  string        `json:"name"`
	Link  overhead.Link `json:"link"`
	Runs  []keptRun     `json:"runs"`
	Trace string        `json:"trace,omitempty"`
}

// archive is the folder that keeps measurements; "" keeps none.
type archive string

// create creates the folder. The measurements of two runs do not mix.
func (a *archive) create() error {
	if *a == "" {
		return nil
	}
	folder, err := filepath.Abs(string(*a))
	if err != nil {
		return err
	}
	*a = archive(folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("-keep %s: the folder is not empty", folder)
	}
	return err
}

// traceFolder returns the folder of the recordings.
func (b *runner) traceFolder() string {
	if b.keep != "" {
		return string(b.keep)
	}
	return b.Dir
}

// add adds measurements of a program to those that are kept.
func (a archive) add(p *program, c *overhead.Constants, cases ...keptCase) error {
	if a == "" {
		return nil
	}
	file := filepath.Join(string(a), p.short()+".json")
	k, err := readKept(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	k.Program, k.Constants, k.Cases = p.Name, *c, append(k.Cases, cases...)
	k.Local, k.Traces = keptRuns(p.references), map[trace.Mode][]keptRun{}
	for mode, recordings := range p.traces {
		for _, r := range recordings {
			k.Traces[mode] = append(k.Traces[mode], keptRun{r.seconds, r.disturbed, filepath.Base(r.file)})
		}
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

// keepCase returns the measurements of a case.
func keepCase(b *bench, r *result) keptCase {
	return keptCase{Name: r.link.String(), Link: emulated(b, r.link.nominal, &r.late), Runs: keptRuns(r.runs)}
}

func keptRuns(runs []run) (out []keptRun) {
	for _, of := range runs {
		out = append(out, keptRun{Seconds: of.seconds, Disturbed: of.disturbed})
	}
	return out
}

// readKept reads the measurements of a program.
func readKept(file string) (k kept, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

// evaluateKept predicts the programs whose measurements are kept in a folder, and writes the errors'
// statistics and a table of all cases.
func evaluateKept(w io.Writer, folder string) error {
	b := &bench{}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no measurements in %s: run with -keep first", folder)
	}
	var results []*result
	var replays []sample
	for _, file := range files {
		of, errs, err := evaluateFile(b, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		results, replays = append(results, of...), append(replays, errs...)
	}
	b.reportPredictions(results)
	b.reportReplays(replays)
	paired.WriteRows(w, b.Report.Rows)
	for _, note := range append(b.Report.Notes, caseTable(results)) {
		fmt.Fprintf(w, "\n%s\n", note)
	}
	return nil
}

// evaluateFile predicts the cases of one program.
func evaluateFile(b *bench, file string) (results []*result, replays []sample, err error) {
	k, err := readKept(file)
	if err != nil {
		return nil, nil, err
	}
	b.constants = k.Constants
	p := k.program(filepath.Dir(file))
	b.cases = append(b.cases, p)
	var cases []keptCase
	for i := range k.Cases {
		c := &k.Cases[i]
		if c.Trace != "" {
			e, _, err := predictReplay(b.options(), filepath.Dir(file), p, c)
			if err != nil {
				return nil, nil, err
			}
			replays = append(replays, e)
			continue
		}
		nominal, err := netem.ParseLink(c.Name)
		if err != nil {
			return nil, nil, err
		}
		cases = append(cases, *c)
		results = append(results, &result{program: p, link: &link{nominal}, runs: runsOf(c.Runs)})
	}
	if len(results) == 0 {
		return nil, replays, nil
	}
	return results, replays, predictCases(b.options(), p, results, cases)
}

// program returns the program of which the measurements are kept in a folder.
func (k *kept) program(folder string) *program {
	p := &program{Program: suite.Program{Name: k.Program}, references: runsOf(k.Local), traces: map[trace.Mode][]recording{}}
	for mode, runs := range k.Traces {
		for _, of := range runs {
			p.traces[mode] = append(p.traces[mode], recording{run{of.Seconds, of.Disturbed}, filepath.Join(folder, of.Trace)})
		}
	}
	p.chooseTraces()
	return p
}

func runsOf(kept []keptRun) (runs []run) {
	for _, of := range kept {
		runs = append(runs, run{of.Seconds, of.Disturbed})
	}
	return runs
}
