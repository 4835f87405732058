package overhead

import (
	"cmp"
	"errors"
	"io"
	"math"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Source is a trace that is read once, as a [trace.Reader] is.
type Source interface {
	Header() *trace.Header
	Next() (trace.Record, error)
	// End returns nil for a trace that was cut off.
	End() *trace.End
}

// Options configures a prediction.
type Options struct {
	Constants Constants
	// ClientCores and DeviceCores are the processors of the two machines; 0 means the number in the
	// trace. SameMachine says that program and device share the client's processors.
	ClientCores, DeviceCores int
	SameMachine              bool
	WhatIf                   WhatIf
	// Intervals asks for Low and High; without them a prediction is eight times as fast.
	Intervals bool
}

type settings struct {
	Options
	// direct says that calls are not forwarded.
	direct bool
	// together says that several programs share link and devices.
	together bool
}

// Open opens a trace. A prediction may read it several times.
type Open func() (Source, error)

// Prediction is the predicted run of a program over one link.
type Prediction struct {
	Link Link
	// Wall is the time from the start of `outboard run` to the end of the program.
	Wall time.Duration
	// Low and High enclose 95 % of the runs, as far as the spread of the recorded times and of
	// the link tells; equal to Wall without Options.Intervals.
	Low, High time.Duration
	// Local is the time of the same run on a device of the program's machine.
	Local time.Duration
	// Traffic counts the program's messages, Work its processor time.
	Traffic Traffic
	Work    Work
}

// Slowdown returns Wall as a multiple of Local, 0 if Local is 0.
func (p Prediction) Slowdown() float64 {
	if p.Local <= 0 {
		return 0
	}
	return float64(p.Wall) / float64(p.Local)
}

// Predict predicts the run of a trace over each link, in one pass over the trace.
func Predict(open Open, links []Link, o Options) ([]Prediction, error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	s, err := o.settings(src.Header(), links)
	if err != nil {
		return nil, err
	}
	l := makeLanes(links, &s.Constants, s.spread(), o.Intervals)
	walls, m, err := evaluate(src, &l, s)
	if err != nil {
		return nil, err
	}
	local, err := localTime(open, src, o)
	if err != nil {
		return nil, err
	}
	out := combine(links, walls, local)
	for i := range out {
		out[i].Traffic, out[i].Work = total(m.traffic), m.work.total()
	}
	return out, nil
}

// localTime returns how long the run takes on a device of the program's machine: as recorded in a
// complete trace of a local run, or else evaluated.
func localTime(open Open, read Source, o Options) (time.Duration, error) {
	if end := read.End(); end != nil && read.Header().Mode == trace.Local {
		return time.Duration(end.Duration), nil
	}
	return Local(open, o)
}

// Local evaluates the run of a trace without forwarding: for a trace of a local run, the run
// itself.
func Local(open Open, o Options) (time.Duration, error) {
	src, err := open()
	if err != nil {
		return 0, err
	}
	links := []Link{{}}
	s, err := o.settings(src.Header(), links)
	if err != nil {
		return 0, err
	}
	s.direct, s.SameMachine = true, true
	l := makeLanes(links, &s.Constants, Spread{}, false)
	walls, _, err := evaluate(src, &l, s)
	if err != nil {
		return 0, err
	}
	return walls[0].Duration(), nil
}

// unknownCores is the number of processors of a device's machine if the trace does not record it:
// enough not to slow anything down.
const unknownCores = 64

func (o Options) settings(h *trace.Header, links []Link) (*settings, error) {
	const op = "predict"
	if len(links) == 0 {
		return nil, outboard.Errorf(outboard.Invalid, op, "no link")
	}
	for _, l := range links {
		if err := l.validate(); err != nil {
			return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
		}
	}
	if err := o.Constants.validate(); err != nil {
		return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	if o.ClientCores == 0 {
		o.ClientCores = max(1, h.Client.Cores)
	}
	if o.DeviceCores == 0 {
		o.DeviceCores = cmp.Or(h.Devices[0].Machine.Cores, unknownCores)
	}
	return &settings{Options: o}, nil
}

// spread returns the spread of each part of a run: as measured, or that of any work on the machine.
func (s *settings) spread() Spread {
	c := &s.Constants
	return Spread{
		Program: c.Spread, Device: cmp.Or(c.DeviceSpread, c.Spread), Forwarding: cmp.Or(c.ForwardingSpread, 2*c.Spread),
		StartUp: cmp.Or(c.StartUpSpread, c.Spread),
	}
}

// evaluate returns when the program ends in each lane, and the model with its sums.
func evaluate(src Source, l *lanes, s *settings) ([]cost.Time, *model, error) {
	m, err := run(src, l, s)
	if err != nil {
		return nil, nil, err
	}
	defer m.e.Close()
	end, err := m.finish(src)
	if err != nil {
		return nil, nil, err
	}
	walls, err := m.e.Times(end)
	return walls, m, err
}

// run adds all records of a trace to a new evaluation, which the caller closes.
func run(src Source, l *lanes, s *settings) (m *model, err error) {
	e := cost.New(l.count)
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	shared, err := newLinks(e, l, s)
	if err != nil {
		return nil, err
	}
	if m, err = newModel(e, l, s, shared, src.Header()); err != nil {
		return nil, err
	}
	for {
		if more, err := m.step(src); err != nil || !more {
			return m, err
		}
	}
}

// step adds the answer that is due, or else the next record of a trace, and reports whether there was
// one.
func (m *model) step(src Source) (bool, error) {
	if m.due != nil {
		return true, m.sendDue()
	}
	r, err := src.Next()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err == nil {
		err = m.add(&r)
	}
	return err == nil, err
}

// finish returns when the program ends.
func (m *model) finish(src Source) (cost.Point, error) {
	switch {
	case m.latest == nil && src.End() == nil:
		return 0, outboard.Errorf(outboard.Invalid, "predict", "the trace was cut off before its first call: record the program again")
	case m.latest == nil:
		return 0, outboard.Errorf(outboard.Invalid, "predict", "the trace has no calls: did %s use the device?", src.Header().Program.Name)
	}
	duration := int64(0)
	if end := src.End(); end != nil {
		duration = end.Duration
	}
	return m.end(duration), nil
}

// coverage is the half-width of an interval in standard deviations: 95 % of a normal distribution.
const coverage = 1.96

// combine turns the lanes of each link into a prediction. The sources of uncertainty are
// independent, and small enough for the first derivative (the delta method).
func combine(links []Link, walls []cost.Time, local time.Duration) []Prediction {
	per := len(walls) / len(links)
	out := make([]Prediction, len(links))
	for i, link := range links {
		lanes := walls[i*per : (i+1)*per]
		p := Prediction{Link: link, Wall: lanes[exact].Duration(), Local: local}
		variance := 0.0
		for _, t := range lanes[1:] {
			variance += math.Pow((t - lanes[exact]).Seconds(), 2)
		}
		half := time.Duration(coverage * math.Sqrt(variance) * float64(time.Second))
		p.Low, p.High = max(0, p.Wall-half), p.Wall+half
		out[i] = p
	}
	return out
}

func tooMany(subject string, most int) error {
	return outboard.Errorf(outboard.Invalid, "predict", "the trace has more than %d %s: that is more than a prediction keeps", most, subject)
}

// ignoreEnd returns err unless it is the end of a trace.
func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
