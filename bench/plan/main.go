// Command plan checks the predictions of `outboard plan` against real runs over emulated links,
// and writes docs/bench/plan.md, plan.json and plan.svg.
//
// Each program is recorded once, on its own machine's driver, and once on a leased device without
// an emulated link. It then runs over each link; the links of one program are taken in turn. No
// constant of the model is fitted to these programs: `outboard calibrate` measures them first, with
// another program.
//
// The time of a case is that of its shortest run, of those that nothing else on the machine
// disturbed if there are any; disturbed runs are repeated. Beside times the report has quantities
// that the machine's other work does not change: round trips, bytes, processor time.
//
// It takes about 20 minutes; -budget bounds that, and -only measures one section and merges its
// result into the report. BENCH_QUICK=1 keeps it to two minutes: two programs, three links, two runs
// of each.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	flag.StringVar(&b.match, "program", "", "measure only the programs whose name has this in it")
	os.Exit(paired.Main(b.run))
}

type bench struct {
	runner
	binary, match string
	constants     overhead.Constants
	// rtt is the round-trip time of a link without emulated delay, which the constants assume.
	rtt time.Duration
	// base is the lateness of the emulation during calibration.
	base  lateness
	links []link
	cases []*program
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
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	if b.choose(); len(b.cases) == 0 {
		return fmt.Errorf("no program that is measured has %q in its name", b.match)
	}
	end, err := b.Begin(ctx, "plan")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if b.match != "" {
		b.Out = "" // some programs alone are no report
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

// calibrate measures the constants over a link without emulated delay.
func (b *bench) calibrate(ctx context.Context) error {
	rounds := fmt.Sprint(b.Rounds(5, 2))
	var out string
	if _, err := b.measure("calibration", &b.base, func() (err error) {
		out, err = b.rig.Node(programNode).Output(ctx, "calibrate", "--rounds", rounds, "-o", "json")
		return err
	}); err != nil {
		return err
	}
	var c struct {
		Constants overhead.Constants
		RTT       time.Duration `json:"rtt_ns"`
	}
	err := json.Unmarshal([]byte(out), &c)
	b.constants, b.rtt = c.Constants, c.RTT
	// The emulation accepts a connection at once: on a network that is a round trip.
	b.constants.StartUpTrips--
	b.constants.OpenTrips--
	fmt.Fprintf(os.Stderr, "  %s\n  deliveries late by %v\n", out, b.base.total())
	reportConstants(b)
	return err
}

// reportConstants reports the constants, and how much the samples differ that they come from: the
// errors of all predictions depend on them.
func reportConstants(b *bench) {
	c := &b.constants
	row := paired.NewRow("calibration: relative standard deviation of what a message costs", "%", "", []float64{100 * c.ForwardingSpread}, nil, paired.Goal{Max: 20})
	b.Row(row.Because("The machine was busy with something else during calibration: no prediction is better than its constants."))
	var text strings.Builder
	fmt.Fprintf(&text, "Constants: an early call %v, a message in relays and worker %v and %v, the relays %.0f MB/s, the start %v, a session open after %v, the driver loaded in %v; wake-ups", c.Encode, c.Relay, c.Dispatch, c.RelayRate/1e6, c.StartUp.Round(time.Millisecond), c.Open.Round(time.Millisecond), c.DriverLoad.Round(time.Millisecond))
	for _, w := range c.Wakes {
		fmt.Fprintf(&text, " %v after %v,", w.Wake.Round(time.Microsecond), w.Pause.Round(time.Microsecond))
	}
	b.Report.Notes = append(b.Report.Notes, strings.TrimSuffix(text.String(), ",")+".")
}
