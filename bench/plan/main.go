// Command plan checks the predictions of `outboard plan` against real runs over emulated links,
// and writes docs/bench/plan.md, plan.json and plan.svg.
//
// Each program runs over each link; the links of one program are taken in turn, and so are its
// recordings, on its own machine's driver and on a leased device without an emulated link. No
// constant of the model is fitted to these programs: `outboard calibrate` measures them, with another
// program, at the beginning and again between the programs.
//
// The time of a case is that of its middle run, of those that nothing else on the machine disturbed
// if there are any, and the predictions are made from the middle recordings; disturbed runs are
// repeated. Beside times the report has quantities
// that the machine's other work does not change: round trips, bytes, processor time.
//
// It takes about 20 minutes; -budget bounds that, and -only measures one section and merges its
// result into the report. BENCH_QUICK=1 keeps it to two minutes: two programs, three links, two runs
// of each.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

func main() {
	b := &bench{runner: runner{observe: observe}}
	b.late = func() (l lateness) {
		l.up, l.down = b.rig.Node(deviceNode).LinkLate()
		return l
	}
	b.Flags()
	b.BudgetFlag()
	flag.DurationVar(&b.repeatFor, "repeat", 5*time.Minute, "how long all repetitions of disturbed runs may take together")
	flag.StringVar(&b.binary, "outboard", "bin/outboard", "the program to measure")
	flag.StringVar(&b.match, "program", "", "a regular expression: measure only the programs whose names match it; there is no report")
	flag.StringVar(&b.overLinks, "link", "", "a regular expression: measure only over the links whose names match it; there is no report")
	flag.StringVar((*string)(&b.keep), "keep", "", "a folder that keeps the traces and all measured times, for -evaluate")
	flag.StringVar(&b.evaluate, "evaluate", "", "measure nothing: predict what -keep kept in this folder, with the model as it is")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	runner
	binary, evaluate string
	// match and overLinks select programs and links.
	match, overLinks string
	constants        overhead.Constants
	// rtt is the round-trip time of a link without emulated delay, which the constants assume.
	rtt time.Duration
	// base is the lateness of the emulation during calibration.
	base  lateness
	links []link
	cases []*program
	// calibrated is when the constants were measured, again has those measured between programs.
	calibrated time.Time
	again      []overhead.Constants
}

// The two nodes: the device's node, and the programs' node.
const (
	deviceNode  = "harbour"
	programNode = "dinghy"
)

func (b *bench) sections() []paired.Section {
	return []paired.Section{
		{Name: "calibrate", Run: b.calibrate, Setup: true},
		{Name: "record", Run: b.record, Setup: true},
		{Name: "predictions", Run: b.predictions, Estimate: func() time.Duration { return firstProgram(b) }},
		{Name: "limits", Run: b.limits, Estimate: b.runs(5, 4)},
		{Name: "what-if", Run: b.whatIf, Estimate: b.runs(5, 0)},
		{Name: "together", Run: b.together, Estimate: b.runs(3, 0)},
		{Name: "others", Run: b.others, Estimate: func() time.Duration { return othersEstimate }},
		{Name: "speed", Run: b.speed, Estimate: func() time.Duration { return 15 * time.Second }},
		{Name: "recording", Run: b.recording, Estimate: b.recordingRuns},
		{Name: "probes", Run: func(ctx context.Context) error { return b.add(probes(ctx)) }, Estimate: func() time.Duration { return 15 * time.Second }},
		{Name: "replay", Run: b.replay, Estimate: b.runs(3, 0)},
		{Name: "buckets", Run: b.buckets, Estimate: b.runs(5, 0)},
		{Name: "disturbance", Run: func(context.Context) error { b.disturbance(); return nil }, Setup: true},
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.evaluate != "" {
		return evaluateKept(os.Stdout, b.evaluate)
	}
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if err := b.choose(); err != nil {
		return err
	}
	if err := b.keep.create(); err != nil {
		return err
	}
	end, err := b.Begin(ctx, "plan")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if b.match != "" || b.overLinks != "" {
		b.Out = "" // some programs or links alone are no report
	}
	if err := b.Merge(); err != nil {
		return err
	}
	if b.rig, err = rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "nodes"),
		Nodes: []rig.Spec{{Name: deviceNode, Link: &netem.Link{}}, {Name: programNode}},
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.rig.Close()) }()
	b.Report.Notes = append(b.Report.Notes, "The nodes ran "+b.rig.Where()+
		". Program, relays, emulated link, worker and device share the machine's cores, as record 0012 describes.")
	return b.Measure(ctx, b.sections())
}

// add adds a row that was measured without an error.
func (b *bench) add(row paired.Row, err error) error {
	if err == nil {
		b.Row(row)
	}
	return err
}
