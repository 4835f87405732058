package balance

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/fabric/call"
)

// start is when the tests' time begins.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var head = &call.Head{Method: "/shop.Search/Find"}

// seeded is a source of chance that is the same in each run.
func seeded(seed uint64) func() uint64 {
	var mu sync.Mutex
	source := rand.NewPCG(seed, 1)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Uint64()
	}
}

func pickerOf(t testing.TB, c Config, endpoints ...Endpoint) *picker {
	t.Helper()
	c.Random = seeded(7)
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Update(endpoints, start)
	return p.(*picker)
}

// named are endpoints e00, e01, ... with the weights.
func named(weights ...int) []Endpoint {
	var list []Endpoint
	for i, w := range weights {
		list = append(list, Endpoint{ID: fmt.Sprintf("e%02d", i), Weight: w})
	}
	return list
}

type failer interface {
	Helper()
	Fatal(...any)
}

// pick makes a call that ends at once.
func pick(t failer, p Picker, now time.Time, exclude ...string) string {
	t.Helper()
	got, err := p.Pick(head, exclude, now)
	if err != nil {
		t.Fatal(err)
	}
	got.Done(Outcome{}, now)
	return got.Endpoint().ID
}

func counts(t failer, p Picker, now time.Time, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		got[pick(t, p, now)]++
	}
	return got
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]Config{
		"method":  {Method: "best"},
		"choices": {Choices: -1},
		"subset":  {Subset: Subset{Size: -1}},
		"least":   {SlowStart: SlowStart{Least: 2}},
		"percent": {Ejection: Ejection{MaxPercent: 101}},
		"times":   {Reports: Reports{Period: -1}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNobodyToPick(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pick(head, nil, start); !errors.Is(err, ErrNoEndpoints) {
		t.Errorf("before an update: %v", err)
	}
	p.Update(named(1), start)
	p.Update(nil, start)
	if _, err := p.Pick(head, nil, start); !errors.Is(err, ErrNoEndpoints) {
		t.Errorf("after everybody left: %v", err)
	}
}

// Each method gives everybody their share.
func TestShares(t *testing.T) {
	for _, method := range []Method{RoundRobin, LeastRequests, Weighted} {
		t.Run(string(method), rapid.MakeCheck(func(t *rapid.T) {
			weights := rapid.SliceOfN(rapid.IntRange(1, 10), 1, 12).Draw(t, "weights")
			p, err := New(Config{Method: method, Random: seeded(rapid.Uint64().Draw(t, "seed")), Choices: 1})
			if err != nil {
				t.Fatal(err)
			}
			p.Update(named(weights...), start)
			sum, calls := 0, 2000
			for _, w := range weights {
				sum += w
			}
			got := counts(t, p, start, calls)
			if method == LeastRequests && len(weights) <= 1 {
				return
			}
			for i, w := range weights {
				want := float64(calls*w) / float64(sum)
				slack := 0.03*want + 6
				if method == LeastRequests { // by chance: six standard deviations
					slack = 6 * math.Sqrt(want)
				}
				if n := got[fmt.Sprintf("e%02d", i)]; math.Abs(float64(n)-want) > slack {
					t.Fatalf("endpoint %d with weight %d of %v got %d calls, want about %.0f", i, w, weights, n, want)
				}
			}
		}))
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	p := pickerOf(t, Config{}, named(1, 1, 1)...)
	var got []string
	for range 6 {
		got = append(got, pick(t, p, start))
	}
	if diff := cmp.Diff(got[:3], got[3:]); diff != "" {
		t.Errorf("second round (-first +second):\n%s", diff)
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(got), []string{"e00", "e01", "e02"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestLeastRequestsAvoidsTheBusy(t *testing.T) {
	p := pickerOf(t, Config{Method: LeastRequests}, named(1, 1)...)
	for want := range 10 {
		for range 2 {
			if _, err := p.Pick(head, nil, start); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range p.Status(start) {
			if s.Outstanding != int64(want+1) {
				t.Fatalf("%s has %d calls, want %d", s.ID, s.Outstanding, want+1)
			}
		}
	}
}

func TestExcluded(t *testing.T) {
	for _, method := range []Method{RoundRobin, LeastRequests, Weighted} {
		t.Run(string(method), func(t *testing.T) {
			p := pickerOf(t, Config{Method: method}, named(1000, 1, 1, 1)...)
			for range 100 {
				if got := pick(t, p, start, "e00", "e01", "e03"); got != "e02" {
					t.Fatalf("picked %s", got)
				}
			}
			if got := pick(t, p, start, "e00", "e01", "e02", "e03"); got == "" {
				t.Error("picked nobody")
			}
		})
	}
}

func report(calls, utilization float64) *orca.OrcaLoadReport {
	return &orca.OrcaLoadReport{RpsFractional: calls, ApplicationUtilization: utilization}
}

func weightsOf(p Picker, now time.Time) map[string]float64 {
	got := map[string]float64{}
	for _, s := range p.Status(now) {
		got[s.ID] = math.Round(s.Weight*1000) / 1000
	}
	return got
}

func TestReportsBecomeWeights(t *testing.T) {
	p := pickerOf(t, Config{Method: Weighted}, named(1, 1, 1)...)
	at := start.Add
	for s := range 12 {
		p.Report("e00", report(100, 0.5), at(time.Duration(s)*time.Second))
		p.Report("e01", report(100, 0.25), at(time.Duration(s)*time.Second))
		pick(t, p, at(time.Duration(s)*time.Second))
		want := map[string]float64{"e00": 0.333, "e01": 0.333, "e02": 0.333}
		if s >= 10 { // after the blackout; e02 has the mean of the others
			want = map[string]float64{"e00": 0.222, "e01": 0.444, "e02": 0.333}
		}
		if diff := cmp.Diff(weightsOf(p, at(0)), want); diff != "" {
			t.Errorf("after %d s (-got +want):\n%s", s, diff)
		}
	}
	got := counts(t, p, at(12*time.Second), 9000)
	for id, want := range map[string]int{"e00": 2000, "e01": 4000, "e02": 3000} {
		if math.Abs(float64(got[id]-want)) > 100 {
			t.Errorf("%s got %d calls, want %d", id, got[id], want)
		}
	}
	pick(t, p, at(5*time.Minute))
	if diff := cmp.Diff(weightsOf(p, at(5*time.Minute)), map[string]float64{"e00": 0.333, "e01": 0.333, "e02": 0.333}); diff != "" {
		t.Errorf("after they expired (-got +want):\n%s", diff)
	}
}

func TestWeightOfAReport(t *testing.T) {
	for name, test := range map[string]struct {
		config Reports
		report *orca.OrcaLoadReport
		want   float64
	}{
		"application":     {Reports{}, &orca.OrcaLoadReport{RpsFractional: 10, ApplicationUtilization: 0.5, CpuUtilization: 0.1}, 20},
		"processor":       {Reports{}, &orca.OrcaLoadReport{RpsFractional: 10, CpuUtilization: 0.1}, 100},
		"old field":       {Reports{}, &orca.OrcaLoadReport{Rps: 10, CpuUtilization: 0.1}, 100}, //nolint:staticcheck // on purpose
		"errors":          {Reports{ErrorPenalty: 2}, &orca.OrcaLoadReport{RpsFractional: 10, Eps: 1, CpuUtilization: 0.3}, 20},
		"errors ignored":  {Reports{ErrorPenalty: -1}, &orca.OrcaLoadReport{RpsFractional: 10, Eps: 1, CpuUtilization: 0.5}, 20},
		"named":           {Reports{Metric: "kv"}, &orca.OrcaLoadReport{RpsFractional: 10, CpuUtilization: 0.5, NamedMetrics: map[string]float64{"kv": 0.1}}, 100},
		"utilization":     {Reports{Metric: "kv"}, &orca.OrcaLoadReport{RpsFractional: 10, Utilization: map[string]float64{"kv": 0.1}}, 100},
		"no calls":        {Reports{}, &orca.OrcaLoadReport{CpuUtilization: 0.5}, 0},
		"no utilisation":  {Reports{}, &orca.OrcaLoadReport{RpsFractional: 10}, 0},
		"not a number":    {Reports{}, &orca.OrcaLoadReport{RpsFractional: math.NaN(), CpuUtilization: math.Inf(1)}, 0},
		"negative":        {Reports{}, &orca.OrcaLoadReport{RpsFractional: -1, CpuUtilization: -1}, 0},
		"errors infinite": {Reports{ErrorPenalty: 1}, &orca.OrcaLoadReport{RpsFractional: 10, Eps: math.Inf(1), CpuUtilization: 0.5}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var l load
			test.config.Expiry = time.Minute
			l.apply(&test.config, test.report, 0)
			if got := l.weightAt(&test.config, time.Second); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("weight %v, want %v", got, test.want)
			}
		})
	}
}

func TestNearestFirst(t *testing.T) {
	p := pickerOf(t, Config{Locality: Locality{Node: "n1", Zone: "z1", Outstanding: 2}},
		Endpoint{ID: "far", Node: "n3", Zone: "z2"}, Endpoint{ID: "near", Node: "n2", Zone: "z1"}, Endpoint{ID: "here", Node: "n1", Zone: "z1"})
	var got []string
	for range 7 {
		picked, err := p.Pick(head, nil, start)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, picked.Endpoint().ID)
	}
	// When all are busy, the least busy has it.
	want := []string{"here", "here", "near", "near", "far", "far", "here"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if got := pick(t, p, start, "here"); got != "near" && got != "far" {
		t.Errorf("with the nearest excluded: %s", got)
	}
}

// What near endpoints can't do at the utilisation that they should have spills over,
// and comes back when the load goes.
func TestSpillOver(t *testing.T) {
	p := pickerOf(t, Config{Locality: Locality{Node: "n1", Utilization: 0.5}}, Endpoint{ID: "here", Node: "n1"}, Endpoint{ID: "far", Node: "n2"})
	now := start
	for second, demand := range slices.Concat(repeated(60, 1.0), repeated(60, 0.3)) {
		here := 0
		for range 200 {
			if pick(t, p, now) == "here" {
				here++
			}
			now = now.Add(5 * time.Millisecond)
		}
		p.Report("here", report(100, demand*float64(here)/200), now)
		p.Report("far", report(100, demand*float64(200-here)/200/4), now)
		switch {
		case second == 59 && (here < 80 || here > 120):
			t.Errorf("under load %d of 200 calls stayed near, want about 100", here)
		case second == 119 && here < 198:
			t.Errorf("without load %d of 200 calls stayed near, want all", here)
		}
	}
}

func repeated(n int, x float64) []float64 { return slices.Repeat([]float64{x}, n) }

// Near ones are not spared at the cost of others that are worse off.
func TestNoSpillToTheWorse(t *testing.T) {
	p := pickerOf(t, Config{Locality: Locality{Node: "n1", Utilization: 0.5}}, Endpoint{ID: "here", Node: "n1"}, Endpoint{ID: "far", Node: "n2"})
	for second := range 30 {
		now := start.Add(time.Duration(second) * time.Second)
		p.Report("here", report(100, 0.9), now)
		p.Report("far", report(100, 0.95), now)
		if got := pick(t, p, now); got != "here" {
			t.Fatalf("after %d s: %s", second, got)
		}
	}
}

func subsetOf(p Picker) []string {
	var got []string
	for _, s := range p.Status(start) {
		if s.Subset {
			got = append(got, s.ID)
		}
	}
	return got
}

func TestSubsetsAreBalanced(t *testing.T) {
	const clients, size, all = 100, 20, 100
	endpoints := named(slices.Repeat([]int{1}, all)...)
	users := map[string]int{}
	for c := range clients {
		p := pickerOf(t, Config{Subset: Subset{Size: size, Client: fmt.Sprint("node-", c)}}, endpoints...)
		got := subsetOf(p)
		if len(got) != size {
			t.Fatalf("a subset of %d, want %d", len(got), size)
		}
		for _, id := range got {
			users[id]++
		}
	}
	mean := float64(clients * size / all)
	for _, e := range endpoints {
		// Chance alone: four standard deviations.
		if n := float64(users[e.ID]); math.Abs(n-mean) > 4*math.Sqrt(mean*(1-float64(size)/all)) {
			t.Errorf("%s is used by %v clients, want about %v", e.ID, n, mean)
		}
	}
}

func TestSubsetsAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		client := rapid.String().Draw(t, "client")
		size := rapid.IntRange(1, 10).Draw(t, "size")
		ids := rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 2, 40, rapid.ID[string]).Draw(t, "ids")
		set := func(ids []string) []string {
			p, err := New(Config{Subset: Subset{Size: size, Client: client}})
			if err != nil {
				t.Fatal(err)
			}
			var list []Endpoint
			for _, id := range ids {
				list = append(list, Endpoint{ID: id})
			}
			p.Update(list, start)
			return subsetOf(p)
		}
		gone := rapid.IntRange(0, len(ids)-1).Draw(t, "gone")
		before, after := set(ids), set(slices.Delete(slices.Clone(ids), gone, gone+1))
		lost := 0
		for _, id := range before {
			if !slices.Contains(after, id) {
				lost++
			}
		}
		if lost > 1 || lost == 1 && !slices.Contains(before, ids[gone]) {
			t.Fatalf("without %q, %q became %q", ids[gone], before, after)
		}
	})
}

func TestSlowStart(t *testing.T) {
	p := pickerOf(t, Config{SlowStart: SlowStart{Window: 10 * time.Second}}, named(1)...)
	now := start.Add(time.Minute)
	p.Update(named(1, 1), now)
	for after, want := range map[time.Duration]float64{0: 0.091, time.Second: 0.091, 5 * time.Second: 0.333, 10 * time.Second: 0.5} {
		pick(t, p, now.Add(after))
		p.mu.Lock()
		p.rebuild(now.Add(after).Sub(start))
		p.mu.Unlock()
		if got := weightsOf(p, now.Add(after))["e01"]; got != want {
			t.Errorf("after %v: a share of %v, want %v", after, got, want)
		}
	}
}

func TestSlowStartGoesOnByItself(t *testing.T) {
	p := pickerOf(t, Config{SlowStart: SlowStart{Window: 10 * time.Second}}, named(1)...)
	p.Update(named(1, 1), start.Add(time.Minute))
	got := 0
	for i := range 1000 {
		if pick(t, p, start.Add(time.Minute+time.Duration(i)*10*time.Millisecond)) == "e01" {
			got++
		}
	}
	// The integral of x/(1+x) from 0.1 on.
	if got < 290 || got > 330 {
		t.Errorf("%d of 1000 calls while it grew, want about 310", got)
	}
}

func TestPickIsCheap(t *testing.T) {
	for _, method := range []Method{RoundRobin, LeastRequests, Weighted} {
		p := pickerOf(t, everything(method), named(slices.Repeat([]int{1}, 50)...)...)
		exclude := []string{"e01"}
		got := testing.AllocsPerRun(1000, func() {
			picked, _ := p.Pick(head, exclude, start)
			picked.Done(Outcome{}, start)
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a pick", method, got)
		}
	}
}

func everything(m Method) Config {
	return Config{
		Method: m, Reports: Reports{Enabled: true}, Locality: Locality{Node: "n1", Zone: "z1"}, Subset: Subset{Size: 20, Client: "me"},
		SlowStart: SlowStart{Window: time.Minute}, Ejection: Ejection{Consecutive: 5, SuccessRate: 1900},
	}
}

// Everything at once from many goroutines: each pick is given back.
func TestManyGoroutines(t *testing.T) {
	p := pickerOf(t, everything(LeastRequests), named(1, 2, 3, 4)...)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 2))
			for i := range 2000 {
				now := start.Add(time.Duration(i) * 5 * time.Millisecond)
				picked, err := p.Pick(head, nil, now)
				if err != nil {
					t.Error(err)
					return
				}
				var bad error
				if random.IntN(3) == 0 {
					bad = status.Error(codes.Unavailable, "down")
				}
				picked.Done(Outcome{Err: bad, Load: report(10, random.Float64())}, now)
				if i%100 == 0 {
					p.Update(named(slices.Repeat([]int{1}, 1+random.IntN(6))...), now)
					p.Status(now)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range p.Status(start) {
		if s.Outstanding != 0 {
			t.Errorf("%s has %d calls outstanding", s.ID, s.Outstanding)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, method := range []Method{RoundRobin, LeastRequests, Weighted} {
		for _, size := range []int{4, 100} {
			b.Run(fmt.Sprintf("%s/%d", method, size), func(b *testing.B) {
				c := everything(method)
				c.Subset = Subset{}
				p, err := New(c)
				if err != nil {
					b.Fatal(err)
				}
				p.Update(named(slices.Repeat([]int{1}, size)...), start)
				b.ReportAllocs()
				for b.Loop() {
					picked, _ := p.Pick(head, nil, start)
					picked.Done(Outcome{}, start)
				}
			})
		}
	}
}
