package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/plot"
)

// The size of a heat map in cells, and the number of points of a requirement curve.
const (
	mapColumns  = 11
	mapRows     = 9
	curvePoints = 21
)

// draw predicts the ranges and draws them.
func (p *planner) draw(ctx context.Context) error {
	for _, t := range p.sources {
		if isSameFile(t.file, p.opts.plot) {
			return usage("--plot %s is the trace itself: name another file", p.opts.plot)
		}
	}
	if !p.opts.rtt.isRange() {
		p.opts.rtt = durationRange{5 * time.Microsecond, 5 * time.Millisecond, true}
	}
	if !p.opts.bandwidth.isRange() {
		p.opts.bandwidth = bandwidthRange{100e6, 400e9, true}
	}
	heat, err := p.heatMap(ctx)
	if err != nil {
		return p.named(err)
	}
	curves, err := p.curves(leastOf(heat.Values))
	if err != nil {
		return p.named(err)
	}
	timeline, err := p.timeline()
	if err != nil {
		return p.named(err)
	}
	figures := []plot.Figure{heat, curves, timeline}
	f, err := os.Create(p.opts.plot)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return plot.SVG(w, figures...) }
	if strings.HasSuffix(p.opts.plot, ".html") {
		write = func(w io.Writer) error {
			return plot.HTML(w, "What "+p.header.Program.Name+" costs on another machine", figures...)
		}
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// heatMap returns the slowdown over the ranges, with the pool's devices.
func (p *planner) heatMap(ctx context.Context) (*plot.HeatMap, error) {
	rtts, bandwidths := p.opts.rtt.values(mapColumns), p.opts.bandwidth.values(mapRows)
	predictions, err := overhead.Predict(p.sources[0].open, grid(rtts, bandwidths), p.options())
	if err != nil {
		return nil, err
	}
	h := &plot.HeatMap{
		Text: plot.Text{
			Title: "Slowdown of " + p.header.Program.Name + " over the network to its device",
			Description: fmt.Sprintf("Predicted time over that of a local run (%s), which is 1. Darker is slower. Marks are devices of the pool, over the networks measured now.",
				seconds(predictions[0].Local.Seconds())),
		},
		X: plot.Axis{Title: "round-trip time", Format: seconds, Log: true}, Y: plot.Axis{Title: "bandwidth, each direction", Format: bitRate, Log: true},
		Ys: bandwidths, Format: times, Least: 1, Most: 1.5, Log: true,
	}
	for _, rtt := range rtts {
		h.Xs = append(h.Xs, rtt.Seconds())
	}
	h.Values = make([][]float64, len(bandwidths))
	for i := range predictions {
		v := predictions[i].Slowdown()
		row := i % len(bandwidths)
		h.Values[row] = append(h.Values[row], v)
		h.Most = max(h.Most, v)
		p.plan.Links = append(p.plan.Links, planLinkOf(&predictions[i]))
		p.plan.Local = predictions[i].Local.Seconds()
	}
	h.Marks = p.poolMarks(ctx)
	return h, nil
}

// poolMarks returns the devices of the pool with a measured network, none without a node.
func (p *planner) poolMarks(ctx context.Context) []plot.Mark {
	near, err := p.env.measuredDevices(ctx)
	if err != nil {
		return nil
	}
	var out []plot.Mark
	for _, d := range near {
		if d.unknown == "" && !d.link.SharedMemory {
			out = append(out, markOf(d.name, &d.link))
		}
	}
	return out
}

// markOf returns the mark of a device. A bandwidth that is not measured bounds no prediction: the
// mark is where the bandwidth is greatest.
func markOf(device string, l *overhead.Link) plot.Mark {
	m := plot.Mark{Name: clean(device), X: l.RTT.Seconds(), Y: min(l.Up, l.Down), Note: seconds(l.RTT.Seconds()) + ", "}
	if m.Y == 0 {
		m.Y = math.Inf(1)
		m.Note += "bandwidth not measured"
	} else {
		m.Note += bitRate(m.Y)
	}
	return m
}

// leastOf returns the least value of a heat map.
func leastOf(values [][]float64) float64 {
	least := values[0][0]
	for _, row := range values {
		least = min(least, slices.Min(row))
	}
	return least
}

// curveCount is the number of slowdowns with a curve.
const curveCount = 4

// bounds returns the slowdowns whose requirements are drawn: the requested one, or the first round
// ones above best, the slowdown on the best network.
func (p *planner) bounds(best float64) (out []percentage) {
	if p.opts.maxSlowdown > 0 {
		return []percentage{p.opts.maxSlowdown}
	}
	for scale := 0.01; len(out) < curveCount; scale *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if bound := percentage(scale * factor); 1+float64(bound) >= best && len(out) < curveCount {
				out = append(out, bound)
			}
		}
	}
	return out
}

// curves returns the requirements of some slowdowns.
func (p *planner) curves(best float64) (*plot.Chart, error) {
	rtt, bandwidth := p.opts.rtt, p.opts.bandwidth
	c := &plot.Chart{
		Text: plot.Text{
			Title:       "The slowest network that keeps a slowdown",
			Description: "For each round-trip time the least bandwidth. Above a line the program keeps that slowdown; where a line ends, no bandwidth does.",
		},
		X: plot.Axis{Title: "round-trip time", Format: seconds, Log: true, Least: rtt.low.Seconds(), Most: rtt.high.Seconds()},
		Y: plot.Axis{Title: "bandwidth needed, each direction", Format: bitRate, Log: true, Least: bandwidth.low, Most: bandwidth.high},
	}
	o := p.options()
	o.Intervals = false
	for _, bound := range p.bounds(best) {
		found, err := overhead.Require(p.sources[0].open, rtt.values(curvePoints), 1+float64(bound), o)
		if err != nil {
			return nil, err
		}
		s := plot.Series{Name: bound.String() + " slower"}
		for _, r := range found {
			if r.Possible {
				s.Points = append(s.Points, plot.Point{X: r.RTT.Seconds(), Y: r.Bandwidth})
			}
		}
		if s.Points == nil {
			s.Name += ": not possible"
		}
		c.Series = append(c.Series, s)
	}
	return c, nil
}

// timeline returns one phase of the program, local beside remote, in the middle of the ranges.
func (p *planner) timeline() (*plot.Timeline, error) {
	rtts, bandwidths := p.opts.rtt.values(3), p.opts.bandwidth.values(3)
	link := grid(rtts[1:2], bandwidths[1:2])[0]
	local, remote, err := overhead.Phase(p.sources[0].open, link, p.options())
	if err != nil {
		return nil, err
	}
	network := fmt.Sprintf("Over %s and %s", seconds(link.RTT.Seconds()), bitRate(link.Up))
	return &plot.Timeline{
		Text: plot.Text{
			Title:       "One phase, local beside remote",
			Description: "The calls from one wait for the device to the next, where the program sends much in a short time: what each part is busy with.",
		},
		Kinds: phaseKinds, Format: seconds,
		Groups: []plot.TimelineGroup{{Name: "Local", Rows: rowsOf(local)}, {Name: network, Rows: rowsOf(remote)}},
	}, nil
}

// phaseKinds are the rows of a phase, each with its shade.
var phaseKinds = []string{"program", "uplink", "worker", "device", "downlink"}

func rowsOf(spans []overhead.Span) []plot.TimelineRow {
	var rows []plot.TimelineRow
	index := map[string]int{}
	for _, s := range spans {
		i, ok := index[s.Row]
		if !ok {
			i = len(rows)
			index[s.Row] = i
			rows = append(rows, plot.TimelineRow{Name: s.Row})
		}
		rows[i].Spans = append(rows[i].Spans, plot.Span{Begin: s.Begin.Seconds(), End: s.End.Seconds(), Kind: kindOf(s.Row), Name: s.Call})
	}
	return rows
}

func kindOf(row string) int {
	for i, kind := range phaseKinds {
		if row == kind {
			return i
		}
	}
	return 0
}
