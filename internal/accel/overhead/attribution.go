package overhead

import (
	"errors"
	"io"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Kind is a kind of calls whose time one part of the model explains.
type Kind int

// The kinds. A call is of the first kind that it fits.
const (
	// Start is the time up to the end of the first call, which opens the session.
	Start Kind = iota
	// Builds are calls that compile kernels.
	Builds
	// Downloads are calls that wait for an answer of bulkSize or more.
	Downloads
	// Uploads are calls that send bulkSize or more.
	Uploads
	// Waits are calls that wait for another answer.
	Waits
	// Others are calls that wait for no answer.
	Others
	// Program is the time between calls.
	Program

	kinds
)

func (k Kind) String() string {
	return [...]string{"start", "builds", "downloads", "uploads", "waits", "other calls", "program"}[k]
}

// bulkSize is the size from which a message counts as a transfer, in bytes.
const bulkSize = 16 << 10

// Part is the time that a program's threads spent in calls of one kind: as recorded, and as
// predicted over the link of the recording.
type Part struct {
	Kind                Kind
	Calls               int
	Recorded, Predicted time.Duration
}

// Attribute evaluates a trace over the link that it was recorded on, and divides the recorded and the
// predicted time between the kinds of calls: the difference of a part tells which of the model's
// constants or rules is wrong. The parts are in the order of the kinds. The recording begins after
// the lease, so the recorded start lacks the time before.
func Attribute(open Open, link Link, o Options) ([]Part, error) {
	src, err := open()
	if err != nil {
		return nil, err
	}
	s, err := o.settings(src.Header(), []Link{link})
	if err != nil {
		return nil, err
	}
	l := makeLanes([]Link{link}, &s.Constants, Spread{}, false)
	a := attribution{now: map[threadKey]cost.Time{}}
	for k := range a.parts {
		a.parts[k].Kind = Kind(k)
	}
	e := cost.New(l.count)
	defer e.Close()
	shared, err := newLinks(e, &l, s)
	if err != nil {
		return nil, err
	}
	if a.model, err = newModel(e, &l, s, shared, src.Header()); err != nil {
		return nil, err
	}
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return a.parts[:], nil
		}
		if err != nil {
			return nil, err
		}
		if err := a.add(r); err != nil {
			return nil, err
		}
	}
}

// attribution divides the time of a trace between the kinds of its calls.
type attribution struct {
	model *model
	parts [kinds]Part
	now   map[threadKey]cost.Time // when a thread's last call returned
}

// add adds a record's tasks, and the time by which they advance the record's thread.
func (a *attribution) add(r trace.Record) error {
	kind, gap, key := a.kind(&r), r.Gap, threadKey{r.Process, r.Thread}
	known := a.model.threads[key] != nil
	if err := a.model.add(&r); err != nil {
		return err
	}
	t := a.model.threads[key]
	now, err := a.model.e.At(a.model.e.Free(t.on), int(exact))
	now += t.pending
	took := now - a.now[key] - ns(gap)
	a.now[key] = now
	switch {
	case kind == Start:
		a.count(Start, r.End, now)
		return err
	case !known: // a thread begins at a time that the model chose
		took = ns(r.Duration())
	}
	a.count(kind, r.Duration(), took)
	a.count(Program, gap, ns(gap))
	return err
}

// count adds a time to a part; recorded is in ns.
func (a *attribution) count(kind Kind, recorded int64, predicted cost.Time) {
	p := &a.parts[kind]
	p.Calls++
	p.Recorded += time.Duration(recorded)
	p.Predicted += predicted.Duration()
}

func (a *attribution) kind(r *trace.Record) Kind {
	switch {
	case len(a.model.threads) == 0:
		return Start
	case a.model.builds[r.Op]:
		return Builds
	case r.Class == trace.WaitedFor && r.Backward >= bulkSize:
		return Downloads
	case r.Forward >= bulkSize:
		return Uploads
	case r.Class == trace.WaitedFor:
		return Waits
	}
	return Others
}
