package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// calibratedFor is how long constants serve before they are measured again between two programs.
const calibratedFor = 4 * time.Minute

// calibrate measures the constants and reports them.
func (b *bench) calibrate(ctx context.Context) error {
	if err := measureConstants(ctx, b); err != nil {
		return err
	}
	reportConstants(b)
	return nil
}

// recalibrate measures the constants again if that was long ago.
func (b *bench) recalibrate(ctx context.Context) error {
	if time.Since(b.calibrated) < calibratedFor {
		return nil
	}
	if err := measureConstants(ctx, b); err != nil {
		return err
	}
	b.again = append(b.again, b.constants)
	return nil
}

// measureConstants measures the constants over a link without emulated delay.
func measureConstants(ctx context.Context, b *bench) error {
	b.rig.Node(deviceNode).SetLink(netem.Link{})
	rounds := fmt.Sprint(b.Rounds(5, 2))
	var out string
	b.base = lateness{}
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
	b.constants, b.rtt, b.calibrated = c.Constants, c.RTT, time.Now()
	// The emulation accepts a connection at once: on a network that is a round trip.
	b.constants.StartUpTrips--
	b.constants.OpenTrips--
	fmt.Fprintf(os.Stderr, "  %s\n  deliveries late by %v\n", out, b.base.total())
	return err
}

// reportConstants reports the constants, and how much the samples differ that they come from: the
// errors of all predictions depend on them.
func reportConstants(b *bench) {
	c := &b.constants
	row := paired.NewRow("calibration: relative standard deviation of what a message costs", "%", "", []float64{100 * c.ForwardingSpread}, nil, paired.Goal{Max: 20})
	b.Row(row.Because("The machine was busy with something else during calibration: no prediction is better than its constants."))
	b.Report.Notes = append(b.Report.Notes, "Constants: "+describe(c)+".")
}

// reportAgain reports the constants that were measured between programs.
func reportAgain(b *bench) {
	if len(b.again) == 0 {
		return
	}
	var spreads []float64
	var text strings.Builder
	text.WriteString("Constants that were measured again between programs:\n")
	for i := range b.again {
		spreads = append(spreads, 100*b.again[i].ForwardingSpread)
		text.WriteString("\n- " + describe(&b.again[i]))
	}
	b.Row(paired.NewRow("calibrations between programs: relative standard deviation of what a message costs", "%", "", spreads, nil, paired.Goal{Max: 20}))
	b.Report.Notes = append(b.Report.Notes, text.String())
}

// describe returns the constants as text.
func describe(c *overhead.Constants) string {
	var text strings.Builder
	fmt.Fprintf(&text, "an early call %v, a message in relays and worker %v and %v, the relays %.0f MB/s, the start %v, a session open after %v, the driver loaded in %v; wake-ups", c.Encode, c.Relay, c.Dispatch, c.RelayRate/1e6, c.StartUp.Round(time.Millisecond), c.Open.Round(time.Millisecond), c.DriverLoad.Round(time.Millisecond))
	for _, w := range c.Wakes {
		fmt.Fprintf(&text, " %v after %v,", w.Wake.Round(time.Microsecond), w.Pause.Round(time.Microsecond))
	}
	return strings.TrimSuffix(text.String(), ",")
}
