package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// planner makes one plan.
type planner struct {
	env   *Env
	opts  planOptions
	files []string

	constants  overhead.Constants
	sources    []*traceFile
	whatIfs    []whatIf
	header     *trace.Header
	plan       plan
	calibrated bool
	// speeds has the speeds of the measured devices.
	speeds calibration
}

// traceFile opens a trace as often as a prediction reads it.
type traceFile struct {
	path   string
	file   *os.File
	reader *trace.Reader
	// cut says that a read of the trace found it cut off, and lost counts the calls that it lacks.
	cut  bool
	lost uint64
	// interrupted returns an error as soon as the command is interrupted; nil for one that is not.
	interrupted func() error
}

func (t *traceFile) open() (overhead.Source, error) {
	t.noteEnd()
	if t.file != nil {
		_ = t.file.Close() // the file was only read
	}
	f, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	t.file = f
	r, err := trace.NewReader(interruptible{f, t.interrupted})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	t.reader = r
	return r, nil
}

// noteEnd records how the trace ended, if it was read to its end.
func (t *traceFile) noteEnd() {
	if t.reader == nil {
		return
	}
	t.cut = t.cut || t.reader.Truncated()
	if end := t.reader.End(); end != nil {
		t.lost = end.Lost
	}
}

// printIncomplete says which traces lack calls of their programs.
func (p *planner) printIncomplete() {
	for _, t := range p.sources {
		t.noteEnd()
		if t.cut {
			printSafe(p.env.Stderr, "outboard: %s was cut off: the prediction ends where it does\n", t.path)
		}
		if t.lost > 0 {
			printSafe(p.env.Stderr, "outboard: %s lacks %d calls: the prediction is for the others\n", t.path, t.lost)
		}
	}
}

// checkFile refuses a pipe, which cannot be read twice.
func (t *traceFile) checkFile() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return missingTrace(err)
	}
	if !info.Mode().IsRegular() {
		return outboard.Errorf(outboard.Invalid, "plan", "%s is no file: a prediction reads its trace several times, so write it into a file", t.path)
	}
	return nil
}

// interruptible is a file whose reads end when the command is interrupted: long traces take minutes.
type interruptible struct {
	file        io.Reader
	interrupted func() error // nil for never
}

// Read implements io.Reader.
func (f interruptible) Read(b []byte) (int, error) {
	if f.interrupted != nil {
		if err := f.interrupted(); err != nil {
			return 0, err
		}
	}
	return f.file.Read(b)
}

func (p *planner) open(ctx context.Context) error {
	calibration, err := readCalibration(p.env.commandFolder())
	constants := calibration.Constants
	switch {
	case errors.Is(err, os.ErrNotExist):
		constants = overhead.DefaultConstants()
		fmt.Fprintln(p.env.Stderr, "outboard: this machine is not calibrated, so typical costs are used: run `outboard calibrate` once")
	case err != nil:
		return err
	default:
		p.calibrated, p.speeds = true, calibration
	}
	p.constants = constants
	p.whatIfs, _ = parseWhatIf(p.opts.whatIf) // validate has parsed it
	for _, path := range p.files {
		t := &traceFile{path: path, interrupted: ctx.Err}
		if err := t.checkFile(); err != nil {
			return err
		}
		src, err := t.open()
		if err != nil {
			return err
		}
		if p.header == nil {
			p.header = src.Header()
		}
		p.sources = append(p.sources, t)
	}
	p.plan.Calibrated = p.calibrated
	if !p.opts.together {
		p.plan.Program = p.header.Program.Name
	}
	return nil
}

func (p *planner) options() overhead.Options {
	return overhead.Options{Constants: p.constants, Intervals: true}
}

// networks predicts each combination of --rtt and --bandwidth.
func (p *planner) networks() error {
	const points = 6
	links := grid(p.opts.rtt.values(points), p.opts.bandwidth.values(points))
	return p.predict(links, make([]string, len(links)), p.options())
}

// predict adds the predictions for links, each with the name of its device.
func (p *planner) predict(links []overhead.Link, devices []string, o overhead.Options) error {
	open := p.sources[0].open
	predictions, err := overhead.Predict(open, links, o)
	if err != nil {
		return p.named(err)
	}
	first := len(p.plan.Links)
	for i := range predictions {
		l := planLinkOf(&predictions[i])
		l.Device = devices[i]
		p.plan.Links = append(p.plan.Links, l)
		p.plan.Local = predictions[i].Local.Seconds()
		t := &predictions[i].Traffic
		p.plan.Traffic = &planTraffic{RoundTrips: t.Waited, Messages: t.Waited + t.Early, Up: t.Up, Down: t.Down}
	}
	o.Intervals = false
	for _, w := range p.whatIfs {
		o.WhatIf = w.off
		without, err := overhead.Predict(open, links, o)
		if err != nil {
			return p.named(err)
		}
		for i := range without {
			l := &p.plan.Links[first+i]
			if l.WhatIf == nil {
				l.WhatIf = map[string]float64{}
			}
			l.WhatIf[w.name] = without[i].Wall.Seconds()
		}
	}
	return nil
}

// named adds the trace's name to an error.
func (p *planner) named(err error) error { return fmt.Errorf("%s: %w", p.files[0], err) }

func planLinkOf(q *overhead.Prediction) planLink {
	return planLink{
		Network:    planNetwork{RTT: q.Link.RTT.Seconds(), Up: q.Link.Up, Down: q.Link.Down, SharedMemory: q.Link.SharedMemory},
		DeviceTime: q.Link.DeviceTime,
		Wall:       q.Wall.Seconds(), Low: q.Low.Seconds(), High: q.High.Seconds(), Slowdown: q.Slowdown(),
	}
}

// require finds the slowest network for each round-trip time.
func (p *planner) require() error {
	if !p.opts.rtt.set {
		p.opts.rtt = durationRange{5 * time.Microsecond, 5 * time.Millisecond, true}
	}
	const points = 10
	found, err := overhead.Require(p.sources[0].open, p.opts.rtt.values(points), 1+float64(p.opts.maxSlowdown), p.options())
	if err != nil {
		return p.named(err)
	}
	for _, r := range found {
		p.plan.Required = append(p.plan.Required, planRequirement{r.RTT.Seconds(), r.Bandwidth, r.Possible, r.Low, r.High})
	}
	// The time of the local run: that over an ideal network.
	free, err := overhead.Predict(p.sources[0].open, []overhead.Link{{}}, p.options())
	if err != nil {
		return p.named(err)
	}
	p.plan.Local = free[0].Local.Seconds()
	return nil
}

// together predicts all traces on one network.
func (p *planner) together() error {
	link := overhead.Link{RTT: p.opts.rtt.low, Up: p.opts.bandwidth.low, Down: p.opts.bandwidth.low}
	var opens []overhead.Open
	for _, t := range p.sources {
		opens = append(opens, t.open)
	}
	predictions, err := overhead.PredictTogether(opens, link, p.options())
	if err != nil {
		return err
	}
	for i := range predictions {
		l := planLinkOf(&predictions[i])
		l.Program, l.Local = filepath.Base(p.files[i]), predictions[i].Local.Seconds()
		p.plan.Links = append(p.plan.Links, l)
	}
	return nil
}

// devices predicts the program's time on the devices of the pool.
func (p *planner) devices(ctx context.Context) error {
	near, err := p.env.measuredDevices(ctx)
	if err != nil {
		return err
	}
	if len(near) == 0 {
		return outboard.Errorf(outboard.NoDevice, "plan", "the pool has no device; name a network with --rtt and --bandwidth")
	}
	var unknown []string
	defer func() { p.printUnknownSpeeds(unknown) }()
	// Programs share the processors with a device on their own machine.
	for _, same := range []bool{true, false} {
		var links []overhead.Link
		var names []string
		for _, d := range near {
			switch {
			case d.unknown != "" && !same:
				p.plan.Links = append(p.plan.Links, planLink{Device: d.name, Unknown: d.unknown})
			case d.unknown == "" && d.link.SharedMemory == same:
				known := p.speeds.scale(p.header, d.name, &d.link)
				links, names = append(links, d.link), append(names, d.name)
				if !known {
					unknown = append(unknown, d.name)
				}
			}
		}
		if len(links) == 0 {
			continue
		}
		o := p.options()
		o.SameMachine = same
		if err := p.predict(links, names, o); err != nil {
			return err
		}
	}
	return nil
}

// printUnknownSpeeds names the devices that are assumed to be as fast as the recorded one.
func (p *planner) printUnknownSpeeds(devices []string) {
	if len(devices) > 0 && p.calibrated {
		printSafe(p.env.Stderr, "outboard: taken to be as fast as the recorded device, since `outboard calibrate` has not compared them: %s\n", strings.Join(devices, ", "))
	}
}

// measuredDevice is a device of the pool and the network to it.
type measuredDevice struct {
	name    string
	link    overhead.Link
	unknown string
}

// measuredDevices returns the pool's devices with the networks to them.
func (env *Env) measuredDevices(ctx context.Context) ([]measuredDevice, error) {
	c := env.client()
	devices, err := c.Devices(ctx, outboard.Selector{})
	if err != nil {
		return nil, err
	}
	self, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	links, err := c.Nearest(ctx)
	if err != nil {
		return nil, err
	}
	var out []measuredDevice
	for i := range devices {
		d := measuredDevice{name: string(devices[i].ID)}
		l := linkTo(links, devices[i].Node)
		switch {
		case devices[i].Node == self.Node:
			d.link = overhead.Link{SharedMemory: true}
		case l == nil || l.RTT <= 0:
			d.unknown = "its network is not measured: see `outboard network`"
		default:
			d.link = networkOf(l)
		}
		out = append(out, d)
	}
	return out, nil
}

// quartiles is the distance between the quartiles of a normal distribution, in standard deviations.
const quartiles = 1.349

// networkOf returns a measured link for a prediction. Measured bandwidths are lower bounds; a
// direction without a measurement is assumed to be as fast as the other.
func networkOf(l *client.Link) overhead.Link {
	forward, backward := l.Forward, l.Backward
	if forward == 0 {
		forward = backward
	}
	if backward == 0 {
		backward = forward
	}
	spread := 0.0
	if forward > 0 && backward > 0 {
		spread = max(l.ForwardSpread/forward, l.BackwardSpread/backward) / quartiles
	}
	return overhead.Link{
		RTT: l.RTT, Up: bitsPerSecond(forward), Down: bitsPerSecond(backward),
		RTTSpread: min(1, float64(l.RTTSpread)/quartiles/float64(l.RTT)), BandwidthSpread: min(1, spread),
	}
}

// leastBandwidth is the least bandwidth of a prediction, in bits/s.
const leastBandwidth = 10e3

// bitsPerSecond converts a measured rate in bytes/s, 0 for none. One link that is slower than
// predictions allow does not prevent those of the other devices.
func bitsPerSecond(rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return max(8*rate, leastBandwidth)
}
