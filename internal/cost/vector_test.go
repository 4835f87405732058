package cost

import (
	"testing"

	"pgregory.net/rapid"
)

// The processor's kernels give what the obvious loops give, to the last digit.
func TestKernelsMatchTheLoops(t *testing.T) {
	if !hasKernels() {
		t.Skip("this processor has no kernels")
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most int64) (v vector) {
			for i := range v {
				v[i] = rapid.Int64Range(0, most).Draw(t, name)
			}
			return v
		}
		p := blockProfile{latency: draw("latency", int64(maxLatency)), perUnit: draw("per unit", 1<<38), slowdown: draw("slowdown", mostSlow<<slowdownBits)}
		p.plain = rapid.Bool().Draw(t, "plain")
		o := op{cost: rapid.Int64Range(0, int64(maxCost)).Draw(t, "cost"), units: rapid.Int64Range(0, maxUnits).Draw(t, "units")}
		free, after, done := draw("free", maxTime), draw("after", maxTime), vector{}
		wantFree, wantAfter, wantDone := free, after, done
		var k block
		k.serveOne(&wantFree, &wantAfter, &wantDone, &p, &o)
		k.serveFast(&free, &after, &done, &p, &o)
		if free != wantFree || done != wantDone {
			t.Fatalf("served %v, %v\nwant %v, %v", free, done, wantFree, wantDone)
		}
		raise(&wantAfter, &wantFree)
		raiseFast(&after, &free)
		if after != wantAfter {
			t.Fatalf("raised %v\nwant %v", after, wantAfter)
		}
		// A task that waits for its own resource, or names it as done.
		k.serveOne(&wantFree, &wantFree, &wantAfter, &p, &o)
		k.serveFast(&free, &free, &after, &p, &o)
		if free != wantFree || after != wantAfter {
			t.Fatal("a task after its own resource differs")
		}
	})
}

// BenchmarkEvaluator is one call of an accelerator in 1,000 settings: four tasks, on one core and
// on all, lane by lane and with the processor's kernels.
func BenchmarkEvaluator(b *testing.B) {
	for _, fast := range []bool{false, true} {
		name := map[bool]string{false: "lane by lane", true: "kernels"}[fast]
		if fast && !hasKernels() {
			continue
		}
		b.Run(name, func(b *testing.B) { benchmarkEvaluator(b, fast) })
	}
}

func benchmarkEvaluator(b *testing.B, fast bool) {
	const lanes = 1000
	e := New(lanes)
	defer e.Close()
	for _, w := range e.workers {
		for i := range w.blocks {
			w.blocks[i].fast = fast
		}
	}
	latency, perUnit := make([]Time, lanes), make([]float64, lanes)
	for i := range lanes {
		latency[i], perUnit[i] = Time(i)*Microsecond, float64(i)*1e-11
	}
	var rs [4]Resource
	for i := range rs {
		p := Profile{}
		if i == 1 {
			p = Profile{Latency: latency, PerUnit: perUnit}
		}
		r, err := e.Resource(p)
		if err != nil {
			b.Fatal(err)
		}
		rs[i] = r
	}
	at := e.Point()
	for b.Loop() {
		for i, r := range rs {
			t := Task{On: r, After: [2]Point{at}, Cost: Microsecond, Units: 100, Done: at}
			if i == 0 {
				t.After[0] = 0
			}
			e.Add(t)
		}
	}
	if _, err := e.Times(at); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lanes, "ns/call/setting")
}
