package cli

import (
	"fmt"

	"github.com/outboard-run/outboard"
)

func (p *planner) print() error {
	if p.opts.output == "json" {
		return p.opts.output.print(p.env, p.plan, nil, nil)
	}
	out := p.env.Stdout
	if p.opts.together {
		return writeTable(out, "", []string{"TRACE", "PREDICTED", "95 % OF RUNS", "SLOWDOWN"}, p.linkRows(func(l *planLink) []string { return []string{l.Program} }))
	}
	if p.plan.Local > 0 {
		fmt.Fprintf(out, "%s takes %s on a device of its own machine.\n", clean(p.plan.Program), seconds(p.plan.Local))
		if t := p.plan.Traffic; t != nil {
			fmt.Fprintf(out, "Elsewhere it waits for %d round trips, and sends %v there and %v back.\n", t.RoundTrips, outboard.Bytes(t.Up), outboard.Bytes(t.Down))
		}
		fmt.Fprintln(out)
	}
	switch {
	case p.plan.Required != nil:
		return p.printRequired()
	case p.opts.rtt.set || p.opts.bandwidth.set:
		return writeTable(out, "", append([]string{"RTT", "BANDWIDTH"}, p.titles()...), p.linkRows(func(l *planLink) []string {
			return []string{seconds(l.Network.RTT), bitRate(l.Network.Up)}
		}))
	}
	return writeTable(out, "", append([]string{"DEVICE", "SPEED", "RTT", "UP", "DOWN"}, p.titles()...), p.linkRows(func(l *planLink) []string {
		switch {
		case l.Unknown != "":
			return []string{l.Device, "-", l.Unknown}
		case l.Network.SharedMemory:
			return []string{l.Device, speedup(l.DeviceTime), "-", "shared memory", "shared memory"}
		}
		return []string{l.Device, speedup(l.DeviceTime), seconds(l.Network.RTT), bitRate(l.Network.Up), bitRate(l.Network.Down)}
	}))
}

// speedup formats the speed of a device relative to the recorded one.
func speedup(deviceTime float64) string {
	if deviceTime == 0 {
		return "as recorded"
	}
	return times(1 / deviceTime)
}

// titles returns the columns of a prediction.
func (p *planner) titles() []string {
	titles := []string{"PREDICTED", "95 % OF RUNS", "SLOWDOWN"}
	for _, w := range p.whatIfs {
		titles = append(titles, w.name)
	}
	return titles
}

func (p *planner) linkRows(head func(*planLink) []string) [][]string {
	var rows [][]string
	for i := range p.plan.Links {
		l := &p.plan.Links[i]
		row := head(l)
		if l.Unknown == "" {
			row = append(row, seconds(l.Wall), seconds(l.Low)+" to "+seconds(l.High), times(l.Slowdown))
		}
		for _, w := range p.whatIfs {
			if v, ok := l.WhatIf[w.name]; ok {
				row = append(row, fmt.Sprintf("%s (%+.0f%%)", seconds(v), 100*(v/l.Wall-1)))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (p *planner) printRequired() error {
	fmt.Fprintf(p.env.Stdout, "To be at most %s slower it needs:\n", p.opts.maxSlowdown.String())
	var rows [][]string
	for _, r := range p.plan.Required {
		need := "at least " + bitRate(r.Bandwidth)
		switch {
		case !r.Possible:
			need = "not possible: its messages and round trips alone cost more"
		case r.Bandwidth <= 1.01e6:
			need = "any bandwidth from 1 Mbit/s"
		}
		rows = append(rows, []string{seconds(r.RTT), need, r.interval()})
	}
	return writeTable(p.env.Stdout, "", []string{"RTT", "BANDWIDTH", "95 % INTERVAL"}, rows)
}

// interval formats the interval around the least bandwidth.
func (r *planRequirement) interval() string {
	switch {
	case r.Low == 0:
		return "not possible"
	case r.High == 0:
		return "above " + bitRate(r.Low) + ", or not possible"
	}
	return bitRate(r.Low) + " to " + bitRate(r.High)
}
