package tiers

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// newTrace returns a step of a chain of layers: saved in order, used in the reverse one.
func newTrace(sizes []int64, compute float64) *Trace {
	t := &Trace{
		Limits: Limits{1 << 40, 1 << 40, 1 << 40}, Write: [tiers]float64{0, 1e3, 1e2}, Read: [tiers]float64{0, 1e3, 1e2}, Sizes: sizes,
	}
	for i := range sizes {
		t.Events = append(t.Events, i)
	}
	for i := range slices.Backward(sizes) {
		t.Events = append(t.Events, i)
	}
	for e := range t.Events {
		t.Times = append(t.Times, float64(e)*compute)
	}
	return t
}

// randomTrace returns a small step with uses in any order.
func randomTrace(r *rand.Rand, most int) *Trace {
	n := 1 + r.IntN(most)
	t := &Trace{
		Limits: Limits{int64(20 + r.IntN(200)), int64(r.IntN(150)), int64(r.IntN(400))},
		Write:  [tiers]float64{0, 100, 20}, Read: [tiers]float64{0, 100, 20},
	}
	var live []int
	now := 0.0
	for saved := 0; saved < n || len(live) > 0; {
		if saved < n && (len(live) == 0 || r.IntN(3) > 0) {
			t.Sizes = append(t.Sizes, int64(1+r.IntN(60)))
			t.Events, live = append(t.Events, saved), append(live, saved)
			saved++
		} else {
			at := len(live) - 1
			if r.IntN(4) == 0 {
				at = r.IntN(len(live))
			}
			t.Events, live = append(t.Events, live[at]), slices.Delete(live, at, at+1)
		}
		now += r.Float64()
		t.Times = append(t.Times, now)
	}
	t.Times[0] = 0
	return t
}

func TestAllOnTheDeviceWhereTheyFit(t *testing.T) {
	trace := newTrace([]int64{10, 20, 30}, 1)
	p := Best(trace)
	if p.Predicted.Waited != 0 || p.Predicted.Peak != 60 || slices.ContainsFunc(p.Placements, func(at Placement) bool { return at.Tier != Device }) {
		t.Errorf("got %+v", p)
	}
}

// The tensors that lie unused for the longest time leave the device, to the fastest tier with room,
// and are back without a wait where the links are fast enough.
func TestOldestLeaveFirst(t *testing.T) {
	trace := newTrace([]int64{10, 10, 10, 10, 10, 10}, 1)
	trace.Limits = Limits{40, 10, 100}
	p := Best(trace)
	if p.Predicted.Exceeds || p.Predicted.Waited != 0 || p.Predicted.Peak > 40 {
		t.Fatalf("got %+v", p.Predicted)
	}
	if p.Placements[0].Tier != Host || p.Placements[1].Tier != Disk || p.Placements[5].Tier != Device {
		t.Errorf("got %+v", p.Placements)
	}
	// The time to read it is 0.1 s, so that it is read after the event before its use.
	if used := len(trace.Events) - 2; p.Placements[1].Prefetch != used-1 {
		t.Errorf("tensor 1 is read after event %d, want %d", p.Placements[1].Prefetch, used-1)
	}
}

func TestReadsBeginEarlyOnASlowLink(t *testing.T) {
	trace := newTrace([]int64{10, 10, 10, 10, 10, 10, 10, 10}, 1)
	trace.Limits = Limits{60, 0, 1000}
	trace.Write[Disk], trace.Read[Disk] = 5, 5 // 2 s for each tensor, between events of 1 s
	p := Best(trace)
	if p.Predicted.Exceeds || p.Predicted.Waited > 1 {
		t.Errorf("the step waits %v s: %+v", p.Predicted.Waited, p)
	}
}

func TestNoRoomIsSaid(t *testing.T) {
	trace := newTrace([]int64{10, 10, 10}, 1)
	trace.Limits = Limits{10, 5, 0}
	if p := Best(trace); !p.Predicted.Exceeds {
		t.Errorf("30 bytes fit into 15: %+v", p)
	}
}

// bruteForce returns the best prediction over all choices of tiers, with the reads of schedule.
func bruteForce(t *Trace) (best Prediction) {
	p, n := newPlanner(t), len(t.Sizes)
	count := 1
	for range n {
		count *= int(tiers)
	}
	for code := range count {
		placements, held := make([]Placement, n), make([]int64, 2*n)
		for i := range placements {
			placements[i].Tier = Tier(code % int(tiers))
			if code /= int(tiers); placements[i].Tier == Device {
				p.add(held, i, t.Sizes[i])
			} else if t.Limits[placements[i].Tier] == 0 {
				placements[i].Tier = Device
			}
		}
		p.schedule(placements, held)
		if found := Simulate(t, placements); best.Seconds == 0 || found.before(&best) {
			best = found
		}
	}
	return best
}

// Of thousands of small steps that fit by some choice of tiers nearly all have a plan that fits, and
// few plans take noticeably longer than the best choice.
func TestPlansAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the cases are to be the same each time
	cases, slow, fit := 0, 0, 0
	for range 2000 {
		trace := randomTrace(r, 6)
		if err := trace.Check(); err != nil {
			t.Fatal(err)
		}
		want, got := bruteForce(trace), Best(trace).Predicted
		if want.Exceeds {
			continue
		}
		cases++
		if !got.Exceeds {
			fit++
		}
		if got.Exceeds || got.Seconds > 1.05*want.Seconds {
			slow++
		}
	}
	t.Logf("%d cases: %d fit, %d are slower than 1.05 times the best choice, or do not fit", cases, fit, slow)
	if cases < 500 || fit < cases*98/100 || slow > cases/20 {
		t.Errorf("%d cases, %d fit, %d slow", cases, fit, slow)
	}
}

// TestManyTensorsWithoutRoom: a rank chooses what its node plans. Tensors for which no tier has room
// are not tried again for each tensor that moves: that would take longer than the time limit of go
// test, with 7e11 comparisons.
func TestManyTensorsWithoutRoom(t *testing.T) {
	sizes := make([]int64, MaxTensors)
	for i := range sizes {
		sizes[i] = 1
		if i < MaxTensors/2 { // those unused for longest
			sizes[i] = 1 << 20
		}
	}
	trace := newTrace(sizes, 1)
	trace.Limits = Limits{0, MaxTensors, MaxTensors}
	if err := trace.Check(); err != nil {
		t.Fatal(err)
	}
	for i, p := range Best(trace).Placements {
		// The last one is used at once.
		if want := sizes[i] == 1 && i < MaxTensors-1; (p.Tier == Host) != want {
			t.Fatalf("tensor %d of %d bytes is in %v", i, sizes[i], p.Tier)
		}
	}
}

func TestMalformedTraces(t *testing.T) {
	for name, change := range map[string]func(*Trace){
		"an event is missing":       func(t *Trace) { t.Events = t.Events[1:] },
		"a tensor is used early":    func(t *Trace) { t.Events[0], t.Events[5] = t.Events[5], t.Events[0]; t.Events[0] = 2 },
		"a tensor is used twice":    func(t *Trace) { t.Events[4] = t.Events[3] },
		"a negative number":         func(t *Trace) { t.Events[3] = -1 },
		"time runs backward":        func(t *Trace) { t.Times[2] = 0.1 },
		"a negative size":           func(t *Trace) { t.Sizes[0] = -1 },
		"sizes that overflow":       func(t *Trace) { t.Sizes[0], t.Sizes[1] = 1<<49, 1<<62 },
		"a tier without a speed":    func(t *Trace) { t.Read[Disk] = 0 },
		"a negative limit":          func(t *Trace) { t.Limits[Device] = -1 },
		"more tensors than allowed": func(t *Trace) { t.Sizes = make([]int64, MaxTensors+1) },
	} {
		trace := newTrace([]int64{1, 2, 3}, 1)
		change(trace)
		if trace.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPlanJSON(t *testing.T) {
	trace := newTrace([]int64{10, 10, 10, 10}, 1)
	trace.Limits = Limits{20, 100, 0}
	text, err := json.Marshal(trace)
	if err != nil {
		t.Fatal(err)
	}
	answer, description, err := PlanJSON(text)
	if err != nil || !strings.Contains(string(answer), `"tiers":"hhdd"`) || !strings.Contains(description, "on the host") {
		t.Errorf("%s, %q, %v", answer, description, err)
	}
}

func FuzzPlanJSON(f *testing.F) {
	text, err := json.Marshal(newTrace([]int64{10, 20, 30}, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"limits":[1,0,9],"read":[0,0,1],"write":[0,0,1],"sizes":[5],"events":[0,0],"times":[0,1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var trace Trace
		if json.Unmarshal(text, &trace) != nil || trace.Check() != nil || len(trace.Sizes) > 100 {
			return
		}
		p := Best(&trace)
		saved, used := trace.lives()
		for i, at := range p.Placements {
			if at.Tier != Device && (at.Prefetch < saved[i] || at.Prefetch >= used[i]) {
				t.Fatalf("tensor %d is read after event %d, not between %d and %d", i, at.Prefetch, saved[i], used[i])
			}
		}
		if _, _, err := PlanJSON(text); err != nil {
			t.Fatal(err)
		}
	})
}
