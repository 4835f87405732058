package overhead

import (
	"fmt"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Span is a time in which a resource was busy with a call.
type Span struct {
	// Row names the resource: "thread 0", "uplink", "worker", "queue 1", "downlink".
	Row  string
	Call string
	// Begin and End are relative to the beginning of the phase.
	Begin, End time.Duration
}

// maxPhase bounds the calls of a phase.
const maxPhase = 400

// phase is a range of records, between two waits in the middle of a program.
type phase struct{ first, last int }

// Phase evaluates the busiest phase of a program, from one wait to the next: without forwarding,
// and over the link.
func Phase(open Open, link Link, o Options) (local, remote []Span, err error) {
	p, err := busiest(open)
	if err != nil {
		return nil, nil, err
	}
	if local, err = p.spans(open, link, o, true); err == nil {
		remote, err = p.spans(open, link, o, false)
	}
	return local, remote, err
}

// busiest finds the phase between two waits that has many messages in a short time: the greatest
// square of their number over its length. The records before the first wait and after the last are
// a phase only if there is no other.
func busiest(open Open) (phase, error) {
	src, err := open()
	if err != nil {
		return phase{}, err
	}
	var best phase
	most, sent, begin := 0.0, 0.0, int64(0)
	for first, n, waited := 0, 0, false; ; n++ {
		r, err := src.Next()
		if err != nil {
			if most == 0 {
				best = phase{0, min(n-1, maxPhase)}
			}
			return best, ignoreEnd(err)
		}
		if r.Class != trace.AnsweredLocally {
			sent++
		}
		if r.Blocking != trace.HostBlocking {
			continue
		}
		if score := sent * sent / float64(max(1, r.End-begin)); waited && score > most && n-first < maxPhase {
			most, best = score, phase{first, n}
		}
		sent, first, begin, waited = 0, n+1, r.End, true
	}
}

// spans evaluates the trace up to the phase, and returns the spans of the phase.
func (p phase) spans(open Open, link Link, o Options, direct bool) ([]Span, error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	links := []Link{link}
	s, err := o.settings(src.Header(), links)
	if err != nil {
		return nil, err
	}
	s.direct = direct
	l := makeLanes(links, &s.Constants, Spread{}, false)
	e := cost.New(l.count)
	defer e.Close()
	shared, err := newLinks(e, &l, s)
	if err != nil {
		return nil, err
	}
	m, err := newModel(e, &l, s, shared, src.Header())
	if err != nil {
		return nil, err
	}
	w := watch{model: m}
	for i := 0; i <= p.last; i++ {
		r, err := src.Next()
		if err != nil {
			return nil, ignoreEnd(err)
		}
		if i == p.first {
			e.Observe(w.task)
		}
		w.call = m.header.Ops[r.Op].Name
		if err := m.add(&r); err != nil {
			return nil, err
		}
	}
	return w.fromStart(), nil
}

// watch collects the spans of a phase.
type watch struct {
	model *model
	call  string
	all   []timed
}

type timed struct {
	row, call  string
	begin, end cost.Time
}

func (w *watch) task(t cost.Task, begin, end cost.Time) {
	row := w.model.row(t.On)
	if row == "" || end <= begin {
		return
	}
	// The parts of a message follow each other without a pause while there is credit.
	if n := len(w.all); n > 0 && w.all[n-1].row == row && w.all[n-1].call == w.call && w.all[n-1].end == begin {
		w.all[n-1].end = end
		return
	}
	w.all = append(w.all, timed{row, w.call, begin, end})
}

// fromStart returns the spans with times relative to the earliest begin.
func (w *watch) fromStart() []Span {
	if len(w.all) == 0 {
		return nil
	}
	start := w.all[0].begin
	for _, s := range w.all {
		start = min(start, s.begin)
	}
	out := make([]Span, len(w.all))
	for i, s := range w.all {
		out[i] = Span{s.row, s.call, (s.begin - start).Duration(), (s.end - start).Duration()}
	}
	return out
}

// row returns the name of a resource, "" for a resource that exists only in the model.
func (m *model) row(r cost.Resource) string {
	switch r {
	case m.links.up:
		return "uplink"
	case m.links.down:
		return "downlink"
	}
	for key, t := range m.threads {
		if t.on == r {
			return fmt.Sprintf("thread %d", key.thread)
		}
	}
	for _, w := range m.workers {
		if w.on == r {
			return "worker"
		}
	}
	for _, q := range m.queues {
		if q.on == r {
			return "device"
		}
	}
	return ""
}
