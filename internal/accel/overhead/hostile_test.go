package overhead

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/accel/trace"
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
