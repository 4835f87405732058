package overhead

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cost"
)

// Records whose times and names contradict each other give a prediction or an error: nothing
// crashes.
func TestContradictoryTracesDoNotCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newProgram().exit(0)
		r.header.Mode = rapid.SampledFrom([]trace.Mode{trace.Local, trace.Remote}).Draw(t, "mode")
		number := rapid.OneOf(rapid.Int64Range(-5, 1e6), rapid.Int64())
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			n := func(label string) int64 { return number.Draw(t, label) }
			r.records = append(r.records, trace.Record{
				Process: uint32(n("process")), Thread: uint32(n("thread")), Op: uint16(rapid.IntRange(0, opFinish).Draw(t, "op")),
				Class: trace.Class(rapid.IntRange(0, 3).Draw(t, "class")), Blocking: trace.Blocking(rapid.IntRange(0, 3).Draw(t, "blocking")),
				Command: rapid.Bool().Draw(t, "command"), OutOfOrder: rapid.Bool().Draw(t, "order"), Queue: uint64(n("queue")), Event: uint64(n("event")),
				Waits: []uint64{uint64(n("waits"))}, Forward: uint64(n("forward")), Backward: uint64(n("backward")), Gap: n("gap"), Begin: n("begin"), End: n("end"),
				Encode: n("encode"), WireForward: n("wire"), Execute: n("execute"), WireBackward: n("back"), Blocked: n("blocked"), Start: n("start"), DeviceTime: n("device"),
			})
		}
		links := []Link{{}, {RTT: time.Millisecond, Up: 1e9, Down: 1e9}}
		_, _ = Predict(r.open, links, Options{Constants: DefaultConstants()})
		_, _ = Local(r.open, Options{Constants: DefaultConstants()})
		_, _ = PredictTogether([]Open{r.open, r.open}, links[1], Options{Constants: DefaultConstants()})
		_, _, _ = Phase(r.open, links[1], Options{Constants: DefaultConstants()})
	})
}

// Times that no integer holds in the evaluator's unit are refused: they would count as others.
func TestHostileTimes(t *testing.T) {
	const wraps = 18_446_744_073_709_552 // ns: 213 days, 384 ps in 64 bits
	for name, change := range map[string]func(*recording){
		"gap":         func(r *recording) { r.records[1].Gap = wraps },
		"length":      func(r *recording) { r.records[1].End = r.records[1].Begin + wraps; r.records[1].Execute = wraps },
		"begin":       func(r *recording) { r.records[1].Thread, r.records[1].Begin, r.records[1].End = 1, wraps, wraps },
		"device":      func(r *recording) { r.records[1].DeviceTime = wraps },
		"device idle": func(r *recording) { r.records[1].Start = wraps },
		"end": func(r *recording) {
			r.end.Duration = wraps + r.records[len(r.records)-1].End
			r.header.Mode = trace.Remote
		},
		"many": func(r *recording) {
			for range 9 { // 213 days together
				r.records = append(r.records, trace.Record{Op: opInfo, Gap: wraps / 9, Begin: r.end.Duration, End: r.end.Duration})
			}
		},
	} {
		p := newProgram()
		p.info(time.Microsecond)
		p.launch(time.Microsecond, time.Millisecond)
		p.finish(0)
		r := p.exit(0)
		change(r)
		for _, predict := range []func() error{
			func() error { _, err := Local(r.open, Options{Constants: DefaultConstants()}); return err },
			func() error {
				_, err := Predict(r.open, []Link{{RTT: time.Millisecond}}, Options{Constants: DefaultConstants()})
				return err
			},
		} {
			if err := predict(); !errors.Is(err, cost.ErrTooLong) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
