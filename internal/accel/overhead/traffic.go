package overhead

import (
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Traffic counts the messages that calls send over the link.
type Traffic struct {
	// Calls counts all calls, Early the calls that send a message and continue, Waited the calls
	// that send a message and wait for its answer: round trips.
	Calls, Early, Waited uint64
	// Up and Down are the bytes of the messages towards the device and back, without framing.
	Up, Down uint64
}

// Work is the processor time of a run, the same over every link: the work that the model adds to
// its capacities.
type Work struct {
	// Program is the time of the program's threads, their gaps counted as work; Relay that of one
	// side's relay; Worker that of the worker and the driver; Device that of a device that is a
	// processor, counted once for all its cores.
	Program, Relay, Worker, Device time.Duration
}

// work sums Work in the evaluator's unit.
type work struct{ program, relay, worker, device cost.Time }

func (w *work) total() Work {
	return Work{w.program.Duration(), w.relay.Duration(), w.worker.Duration(), w.device.Duration()}
}

func (t *Traffic) add(r *trace.Record, class trace.Class) {
	t.Calls++
	switch class {
	case trace.AnsweredLocally:
		return
	case trace.Early:
		t.Early++
	case trace.WaitedFor:
		t.Waited++
	}
	t.Up, t.Down = t.Up+r.Forward, t.Down+r.Backward
}

// Count returns the traffic of a trace's calls when they are forwarded, by the name of their
// function. It is exact for a trace of a remote run; for one of a local run it is derived.
func Count(open Open, what WhatIf) (map[string]Traffic, error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	o := Options{Constants: DefaultConstants(), WhatIf: what}
	s, err := o.settings(src.Header(), []Link{{}})
	if err != nil {
		return nil, err
	}
	l := makeLanes([]Link{{}}, &s.Constants, Spread{}, false)
	m, err := run(src, &l, s)
	if err != nil {
		return nil, err
	}
	defer m.e.Close()
	out := map[string]Traffic{}
	for i, t := range m.traffic {
		if t.Calls > 0 {
			out[src.Header().Ops[i].Name] = t
		}
	}
	return out, nil
}

// total adds the traffic of all functions.
func total(traffic []Traffic) (all Traffic) {
	for _, t := range traffic {
		all.accumulate(t)
	}
	return all
}

// Sum adds the traffic of all functions.
func Sum(of map[string]Traffic) (all Traffic) {
	for _, t := range of {
		all.accumulate(t)
	}
	return all
}

func (t *Traffic) accumulate(u Traffic) {
	t.Calls, t.Early, t.Waited = t.Calls+u.Calls, t.Early+u.Early, t.Waited+u.Waited
	t.Up, t.Down = t.Up+u.Up, t.Down+u.Down
}
