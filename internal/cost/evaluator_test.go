package cost

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// graph is a random sequence of tasks on a few resources.
type graph struct {
	profiles []Profile
	tasks    []Task // After and Done are indexes of points, 0 is none
	points   int
}

func drawGraph(t *rapid.T) graph {
	g := graph{points: 6}
	for range rapid.IntRange(1, 4).Draw(t, "resources") {
		g.profiles = append(g.profiles, Profile{
			Latency:  []Time{Time(rapid.Int64Range(0, 1e9).Draw(t, "latency"))},
			PerUnit:  []float64{rapid.Float64Range(0, 1e-6).Draw(t, "per unit")},
			Slowdown: []float64{rapid.Float64Range(0.1, 4).Draw(t, "slowdown")},
		})
	}
	point := rapid.IntRange(0, g.points)
	for range rapid.IntRange(1, 40).Draw(t, "tasks") {
		g.tasks = append(g.tasks, Task{
			On:    Resource(rapid.IntRange(1, len(g.profiles)).Draw(t, "on")),
			After: [2]Point{Point(point.Draw(t, "after")), Point(point.Draw(t, "after"))},
			Cost:  Time(rapid.Int64Range(0, 1e10).Draw(t, "cost")), Units: rapid.Int64Range(0, 1e8).Draw(t, "units"),
			Done: Point(point.Draw(t, "done")),
		})
	}
	return g
}

// run returns the final time of each resource and point.
func (g graph) run(t interface{ Fatal(...any) }, lanes int) [][]Time {
	e := New(lanes)
	defer e.Close()
	var resources []Resource
	for _, p := range g.profiles {
		r, err := e.Resource(p)
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, r)
	}
	points := []Point{0}
	for range g.points {
		points = append(points, e.Point())
	}
	for _, task := range g.tasks {
		task.On = resources[task.On-1]
		task.After = [2]Point{points[task.After[0]], points[task.After[1]]}
		task.Done = points[task.Done]
		e.Add(task)
	}
	var all [][]Time
	for _, r := range resources {
		points = append(points, e.Free(r))
	}
	for _, p := range points[1:] {
		times, err := e.Times(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, times)
	}
	return all
}

// obvious evaluates the same recurrence one task after the other, in floating point.
func (g graph) obvious() []float64 {
	free, points := make([]float64, len(g.profiles)), make([]float64, g.points+1)
	for _, task := range g.tasks {
		p, r := g.profiles[task.On-1], &free[task.On-1]
		*r = max(*r, points[task.After[0]], points[task.After[1]]) +
			float64(task.Cost)*p.Slowdown[0] + float64(task.Units)*p.PerUnit[0]*float64(Second)
		if task.Done != 0 {
			points[task.Done] = *r + float64(p.Latency[0])
		}
	}
	return append(points[1:], free...)
}

func TestEvaluatorMatchesTheRecurrence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		want := g.obvious()
		for i, got := range g.run(t, 1) {
			// Slowdown and rate are rounded to fixed point.
			if diff := float64(got[0]) - want[i]; diff > want[i]*1e-3+1e7 || diff < -want[i]*1e-3-1e7 {
				t.Fatalf("time %d is %d ps, want %.0f", i, got[0], want[i])
			}
		}
	})
}

func TestNoResultIsEarlierWhenAResourceIsSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		before := g.run(t, 1)
		p := &g.profiles[rapid.IntRange(0, len(g.profiles)-1).Draw(t, "slower")]
		p.Latency[0] += Time(rapid.Int64Range(0, 1e9).Draw(t, "more latency"))
		p.PerUnit[0] += rapid.Float64Range(0, 1e-6).Draw(t, "more per unit")
		p.Slowdown[0] *= rapid.Float64Range(1, 2).Draw(t, "more slowdown")
		for i, after := range g.run(t, 1) {
			if after[0] < before[i][0] {
				t.Fatalf("time %d went from %d to %d ps", i, before[i][0], after[0])
			}
		}
	})
}

func TestSplittingATaskNeverHelps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		before := g.run(t, 1)
		i := rapid.IntRange(0, len(g.tasks)-1).Draw(t, "task")
		first, second := g.tasks[i], g.tasks[i]
		first.Units = rapid.Int64Range(0, first.Units).Draw(t, "units of the first")
		second.Units -= first.Units
		first.Cost = Time(rapid.Int64Range(0, int64(first.Cost)).Draw(t, "cost of the first"))
		second.Cost -= first.Cost
		first.Done = 0
		g.tasks = slices.Replace(g.tasks, i, i+1, first, second)
		for i, after := range g.run(t, 1) {
			if after[0] < before[i][0] {
				t.Fatalf("time %d went from %d to %d ps", i, before[i][0], after[0])
			}
		}
	})
}

// Lanes in several blocks, on several workers and over several batches give what each gives
// alone.
func TestLanesAreIndependent(t *testing.T) {
	const lanes = 3*laneBlock + 7
	random := rand.New(rand.NewPCG(1, 2))
	latency, perUnit := make([]Time, lanes), make([]float64, lanes)
	for i := range lanes {
		latency[i], perUnit[i] = Time(random.Int64N(1e9)), random.Float64()*1e-7
	}
	chain := func(latency []Time, perUnit []float64) []Time {
		e := New(len(latency))
		defer e.Close()
		link, err := e.Resource(Profile{Latency: latency, PerUnit: perUnit})
		if err != nil {
			t.Fatal(err)
		}
		device, err := e.Resource(Profile{})
		if err != nil {
			t.Fatal(err)
		}
		sent := e.Point()
		for i := range 3 * batchSize {
			e.Add(Task{On: link, Units: int64(i % 1000), Done: sent})
			e.Add(Task{On: device, After: [2]Point{sent}, Cost: Time(i%77) * Nanosecond})
			if i%100 == 0 {
				e.Wait(link, e.Free(device))
			}
		}
		times, err := e.Times(e.Free(device))
		if err != nil {
			t.Fatal(err)
		}
		return times
	}
	all := chain(latency, perUnit)
	for _, i := range []int{0, laneBlock - 1, laneBlock, lanes - 1} {
		if one := chain(latency[i:i+1], perUnit[i:i+1]); one[0] != all[i] {
			t.Errorf("lane %d: %d ps among others, %d alone", i, all[i], one[0])
		}
	}
}

func TestTooLongIsAnError(t *testing.T) {
	e := New(1)
	defer e.Close()
	r, err := e.Resource(Profile{PerUnit: []float64{1e-3}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		e.Add(Task{On: r, Units: 1 << 40})
	}
	if _, err := e.Times(e.Free(r)); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v, want ErrTooLong", err)
	}
}

func TestACapacityBoundsWhatCoresDoTogether(t *testing.T) {
	e := New(1)
	defer e.Close()
	thread, err := e.Resource(Profile{})
	if err != nil {
		t.Fatal(err)
	}
	cores, err := e.Capacity(2, nil).Share()
	if err != nil {
		t.Fatal(err)
	}
	e.Add(Task{On: thread, Cost: 10 * Second})
	cores.Use(10 * Second) // what the thread does
	cores.Use(16 * Second) // what others do meanwhile
	cores.Synchronize(thread)
	times, err := e.Times(e.Free(thread))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := times[0], 13*Second; got != want {
		t.Errorf("26 s of work on 2 cores took %v, want %v", got.Duration(), want.Duration())
	}
}

// Two threads share a core fairly, and none waits for the moment at which the other one synchronized.
func TestSharesOfACapacity(t *testing.T) {
	e := New(1)
	defer e.Close()
	core := e.Capacity(1, nil)
	var threads [2]Resource
	var shares [2]*Share
	for i := range threads {
		var err error
		if threads[i], err = e.Resource(Profile{}); err != nil {
			t.Fatal(err)
		}
		if shares[i], err = core.Share(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(thread int) Time {
		times, err := e.Times(e.Free(threads[thread]))
		if err != nil {
			t.Fatal(err)
		}
		return times[0]
	}
	// The first thread waits for 100 s without work.
	e.Add(Task{On: threads[0], Cost: 100 * Second})
	shares[0].Synchronize(threads[0])
	e.Add(Task{On: threads[1], Cost: 3 * Second})
	shares[1].Use(3 * Second)
	if shares[1].Synchronize(threads[1]); at(1) != 3*Second {
		t.Errorf("beside a thread that waits: %v, want 3 s", at(1).Duration())
	}
	// While the second one works for 2 s, the first one has work for 10: of that, 2 s are done.
	shares[0].Use(10 * Second)
	e.Add(Task{On: threads[1], Cost: 2 * Second})
	shares[1].Use(2 * Second)
	if shares[1].Synchronize(threads[1]); at(1) != 7*Second {
		t.Errorf("beside a thread that works: %v, want 7 s", at(1).Duration())
	}
	for range 3 { // and then what is left of it
		e.Add(Task{On: threads[1], Cost: 4 * Second})
		shares[1].Use(4 * Second)
		shares[1].Synchronize(threads[1])
	}
	if at(1) != (7+12+8)*Second {
		t.Errorf("until the other one's work is done: %v, want 27 s", at(1).Duration())
	}
}

// What depends on a task of a resource with a lead begins before it is served, and no earlier than what
// else it depends on.
func TestALead(t *testing.T) {
	e := New(1)
	defer e.Close()
	r, err := e.Resource(Profile{Latency: []Time{-3 * Second}})
	if err != nil {
		t.Fatal(err)
	}
	next, err := e.Resource(Profile{})
	if err != nil {
		t.Fatal(err)
	}
	done := e.Point()
	for i, want := range []Time{0, Second, 3 * Second} {
		e.Add(Task{On: r, Cost: 2 * Second, Done: done})
		e.Wait(next, done)
		if times, err := e.Times(e.Free(next)); err != nil || times[0] != want {
			t.Errorf("after %d tasks: %v, %v; want %v", i+1, times, err, want.Duration())
		}
	}
}

func TestReleasedPointsBeginAtZero(t *testing.T) {
	e := New(1)
	defer e.Close()
	r, err := e.Resource(Profile{})
	if err != nil {
		t.Fatal(err)
	}
	p := e.Point()
	e.Add(Task{On: r, Cost: Second, Done: p})
	e.Release(p)
	times, err := e.Times(e.Point())
	if err != nil {
		t.Fatal(err)
	}
	if times[0] != 0 {
		t.Errorf("a new point is at %v", times[0].Duration())
	}
}

func TestSettingsOutOfRangeAreRefused(t *testing.T) {
	for name, p := range map[string]Profile{
		"a lead of more than an hour": {Latency: []Time{-3601 * Second}}, "no number": {PerUnit: []float64{nan()}},
		"slow": {Slowdown: []float64{1e6}}, "a value for another count of lanes": {Latency: []Time{1, 2}},
	} {
		e := New(3)
		if _, err := e.Resource(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
		e.Close()
	}
}

func nan() float64 { var zero float64; return zero / zero }
