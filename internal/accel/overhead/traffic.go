package overhead

import (
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Traffic is what calls send over the link.
type Traffic struct {
	// Calls counts all calls, Early those that send a message and go on, Waited those that send
	// one and wait for its answer: round trips.
	Calls, Early, Waited uint64
	// Up and Down are the bytes of the messages towards the device and back, without framing.
	Up, Down uint64
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

// Count returns what the calls of a trace send when they are forwarded, by the name of their
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

// Sum adds the traffic of all functions.
func Sum(of map[string]Traffic) (all Traffic) {
	for _, t := range of {
		all.Calls, all.Early, all.Waited = all.Calls+t.Calls, all.Early+t.Early, all.Waited+t.Waited
		all.Up, all.Down = all.Up+t.Up, all.Down+t.Down
	}
	return all
}
