package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestSwaps swaps sets ten thousand times under calls. Each set stamps calls at its
// beginning and at its end: a call with two different stamps was treated by two sets.
func TestSwaps(t *testing.T) {
	const swaps, workers = 10_000, 4
	sets := make([]*Set, 8)
	for i := range sets {
		sets[i] = parsed(t, swapText(i))
	}
	table := &Table{}
	table.Apply(sets[0], start())
	var stop atomic.Bool
	var begun, ended, calls atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			chance := rand.New(rand.NewPCG(1, uint64(w)))
			var open []*Exchange
			for n := 0; !stop.Load() || n < 100; n++ {
				v := &visit{tenant: fmt.Sprint(chance.IntN(5)), peer: fmt.Sprint(chance.IntN(50)), metadata: metadata.MD{}}
				x := v.exchange()
				calls.Add(1)
				if err := table.For(x.Head).Begin(x); err != nil {
					t.Errorf("a call was refused: %v", err)
					continue
				}
				begun.Add(1)
				first, last := x.Head.Metadata["x-first"], x.Head.Metadata["x-last"]
				number := int(x.Plan.Timeout/time.Millisecond) - 1000
				if !cmp.Equal(first, last) || len(first) != 1 || fmt.Sprint(number) != first[0] {
					t.Errorf("a call saw two sets: %v, %v, %d", first, last, number)
				}
				// Calls stay open over swaps, and end in any order.
				if open = append(open, x); len(open) > 20 {
					i := chance.IntN(len(open))
					open[i].chain.End(open[i], Outcome{Now: start()})
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
					ended.Add(1)
				}
			}
			for _, x := range open {
				x.chain.End(x, Outcome{Now: start()})
				ended.Add(1)
			}
		})
	}
	for i := range swaps {
		if i%5 == 4 {
			if _, err := table.Rollback(start()); err != nil {
				t.Error(err)
			}
			continue
		}
		table.Apply(sets[i%len(sets)], start())
	}
	stop.Store(true)
	group.Wait()
	if begun.Load() != calls.Load() || ended.Load() != calls.Load() {
		t.Errorf("%d calls, %d begun, %d ended", calls.Load(), begun.Load(), ended.Load())
	}
	for _, v := range table.History() {
		if n := inFlight(v.Set); n != 0 {
			t.Errorf("version %d counts %d calls, and all are over", v.Number, n)
		}
	}
	if got := table.Set().Policies()[1].Calls; got != uint64(calls.Load()) {
		t.Errorf("the policy that all sets have counted %d calls of %d", got, calls.Load())
	}
}

func swapText(i int) string {
	return fmt.Sprintf(`
policies:
- {name: first, rewrite: {metadata: {set: {x-first: '"%[1]d"'}}}}
- {name: all, concurrency: {limit: 1000000}}
- {name: tenant, concurrency: {limit: %[2]d, per: tenant}}
- {name: rate, rate: {rate: %[2]d/s, burst: 1000000000, per: peer}}
- {name: health, breaker: {least: 1000000}}
- {name: only%[1]d, concurrency: {limit: 1000000}}
- {name: time, timeout: %[2]dms}
- {name: last, rewrite: {metadata: {set: {x-last: '"%[1]d"'}}}}
`, i, 1000+i)
}

// TestCarriedOver holds for each kind with a state that a swap keeps it.
func TestCarriedOver(t *testing.T) {
	const full = codes.ResourceExhausted
	type change struct{ before, after string }
	tests := map[string]struct {
		change
		use    func(t *testing.T, table *Table) // before the swap
		visits []visit                          // after it
		want   []codes.Code
	}{
		"rate": {change{"rate: {rate: 1/s, burst: 3}", "rate: {rate: 1/s, burst: 3}"}, visits(3), []visit{{}, {at: time.Second}}, []codes.Code{full, 0}},
		"faster": {
			change{"rate: {rate: 1/h, burst: 3}", "rate: {rate: 1/s, burst: 3}"},
			visits(3),
			[]visit{{}, {at: time.Second}, {at: time.Second}, {at: 10 * time.Second}, {at: 10 * time.Second}, {at: 10 * time.Second}, {at: 10 * time.Second}},
			[]codes.Code{full, 0, full, 0, 0, 0, full},
		},
		"slower": {
			change{"rate: {rate: 1000/s, burst: 3, per: tenant}", "rate: {rate: 1/s, burst: 3, per: tenant}"},
			visits(3),
			[]visit{{}, {at: 999 * time.Millisecond}, {at: 1001 * time.Millisecond}},
			[]codes.Code{full, full, 0},
		},
		"greater burst":  {change{"rate: {rate: 1/s, burst: 2}", "rate: {rate: 1/s, burst: 100}"}, visits(2), []visit{{}}, []codes.Code{full}},
		"smaller burst":  {change{"rate: {rate: 1/s, burst: 9}", "rate: {rate: 1/s, burst: 2}"}, visits(0), []visit{{}, {}, {}}, []codes.Code{0, 0, full}},
		"other key":      {change{"rate: {rate: 1/s, burst: 1}", "rate: {rate: 1/s, burst: 1, per: tenant}"}, visits(1), []visit{{}, {}}, []codes.Code{0, full}},
		"concurrency":    {change{"concurrency: {limit: 2}", "concurrency: {limit: 2}"}, opened(2), []visit{{}}, []codes.Code{full}},
		"by tenant":      {change{"concurrency: {limit: 2, per: tenant}", "concurrency: {limit: 3, per: tenant}"}, opened(2), []visit{{}}, []codes.Code{0}},
		"fewer":          {change{"concurrency: {limit: 2, per: tenant}", "concurrency: {limit: 1, per: tenant}"}, opened(1), []visit{{}}, []codes.Code{full}},
		"breaker":        {change{"breaker: {least: 2}", "breaker: {least: 2}"}, failed(2), []visit{{}}, []codes.Code{codes.Unavailable}},
		"breaker counts": {change{"breaker: {least: 2}", "breaker: {least: 2}"}, failed(1), []visit{{err: errUnavailable}, {}}, []codes.Code{0, codes.Unavailable}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			table := &Table{}
			set := func(text string) *Set { return parsed(t, "policies: [{name: x, "+text+"}]") }
			table.Apply(set(test.before), start())
			test.use(t, table)
			table.Apply(set(test.after), start())
			var got []codes.Code
			for _, v := range test.visits {
				_, err := v.run(table.Set())
				got = append(got, code(err))
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func visits(n int) func(*testing.T, *Table) { return repeated(n, nil) }

func failed(n int) func(*testing.T, *Table) { return repeated(n, errUnavailable) }

func repeated(n int, err error) func(*testing.T, *Table) {
	return func(t *testing.T, table *Table) {
		t.Helper()
		for range n {
			if _, err := (&visit{err: err}).run(table.Set()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func opened(n int) func(*testing.T, *Table) {
	return func(t *testing.T, table *Table) {
		t.Helper()
		for range n {
			if _, _, err := (&visit{}).begin(table.Set()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEndsWhereItBegan lets a call end after the set that it began with was replaced.
func TestEndsWhereItBegan(t *testing.T) {
	table := &Table{}
	limit := parsed(t, "policies: [{name: x, concurrency: {limit: 1, per: tenant}}]")
	table.Apply(limit, start())
	v := &visit{}
	x, c, err := v.begin(table.Set())
	if err != nil {
		t.Fatal(err)
	}
	table.Apply(limit, start())
	if _, err := (&visit{}).run(table.Set()); code(err) != codes.ResourceExhausted {
		t.Fatalf("the call under way was forgotten: %v", err)
	}
	v.end(x, c)
	if _, err := (&visit{}).run(table.Set()); err != nil {
		t.Errorf("the call's end was forgotten: %v", err)
	}
}

// A policy that was removed and comes back, by a roll-back or in a later version, continues with its
// state.
func TestStateOutlivesRemoval(t *testing.T) {
	const full = codes.ResourceExhausted
	limits := func() *Set {
		return parsed(t, "policies: [{name: rate, methods: [Place], rate: {rate: 1/h, burst: 1}}, {name: few, methods: [Change], concurrency: {limit: 1}}]")
	}
	for name, back := range map[string]func(*Table) error{
		"rolled back": func(table *Table) error { _, err := table.Rollback(start()); return err },
		"applied":     func(table *Table) error { table.Apply(limits(), start()); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			table := &Table{}
			table.Apply(limits(), start())
			if _, err := (&visit{}).run(table.Set()); err != nil {
				t.Fatal(err)
			}
			v := &visit{method: "/shop.Orders/Change"}
			x, c, err := v.begin(table.Set())
			if err != nil {
				t.Fatal(err)
			}
			table.Apply(parsed(t, "policies: []"), start())
			if err := back(table); err != nil {
				t.Fatal(err)
			}
			if _, err := (&visit{}).run(table.Set()); code(err) != full {
				t.Errorf("the bucket is full again: %v", err)
			}
			if _, err := (&visit{method: v.method}).run(table.Set()); code(err) != full {
				t.Errorf("the call in flight is not counted: %v", err)
			}
			v.end(x, c)
			if _, err := (&visit{method: v.method}).run(table.Set()); err != nil {
				t.Errorf("after the end of the call: %v", err)
			}
		})
	}
}

func TestBudgetCarriedOver(t *testing.T) {
	table := &Table{}
	set := parsed(t, "policies: [{name: x, retry: {budget: {reserve: 1, ratio: 0}}}]")
	next := func() bool {
		table.Apply(set, start())
		x, err := (&visit{}).run(table.Set())
		if err != nil {
			t.Fatal(err)
		}
		_, ok := x.Plan.Retry.Next(x, 1, errUnavailable)
		return ok
	}
	if got := []bool{next(), next()}; !cmp.Equal(got, []bool{true, false}) {
		t.Errorf("got %v: a swap filled the budget", got)
	}
}

func TestRollback(t *testing.T) {
	table := &Table{}
	if _, err := table.Rollback(start()); !errors.Is(err, ErrNoVersion) {
		t.Errorf("of nothing: got %v", err)
	}
	var got []string
	for _, name := range []string{"a", "b", "c", "", "d", "", "", ""} {
		if name != "" {
			s, err := Parse(name, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			table.Apply(s, start())
			continue
		}
		v, err := table.Rollback(start())
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, fmt.Sprintf("%d is %d: %s", v.Number, v.Of, v.Set.Name()))
	}
	want := []string{"4 is 2: b", "6 is 2: b", "7 is 1: a", "roll back policies: no earlier version"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if n := len(table.History()); n != 7 {
		t.Errorf("%d versions are remembered, want 7", n)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	table := &Table{}
	for range 3 * KeptVersions {
		table.Apply(parsed(t, ""), start())
	}
	if n := len(table.History()); n != KeptVersions {
		t.Errorf("%d versions are remembered, want %d", n, KeptVersions)
	}
	if v := table.Version(); v.Number != 3*KeptVersions {
		t.Errorf("version %d is in force", v.Number)
	}
}

// TestKeysAreBounded asks for more keys than are remembered.
func TestKeysAreBounded(t *testing.T) {
	s := parsed(t, `
policies:
- {name: r, rate: {rate: 1/s, burst: 1, per: tenant, keys: 64}}
- {name: c, concurrency: {limit: 1, per: tenant, keys: 64}}
- {name: b, breaker: {key: tenant, keys: 64}}
`)
	held := map[string]bool{}
	for i := range 1000 {
		v := &visit{tenant: fmt.Sprint(i)}
		x, c, err := v.begin(s)
		if err != nil {
			t.Fatal(err)
		}
		if i%100 != 0 {
			v.end(x, c)
			continue
		}
		held[v.tenant] = true
	}
	r, c, b := s.policies[0].step.(*rateStep), s.policies[1].step.(*concurrencyStep), s.policies[2].step.(*breakerStep)
	for name, n := range map[string]int{"rate": r.state.keys.len(), "concurrency": c.state.keys.len(), "breaker": b.keys.len()} {
		if n > 64+len(held) {
			t.Errorf("%s remembers %d keys", name, n)
		}
	}
	if n := inFlight(s); n != int64(len(held)) {
		t.Errorf("%d calls are counted, and %d are under way", n, len(held))
	}
}

// TestPartial reads a file of which some policies can't be read.
func TestPartial(t *testing.T) {
	const text = `
policies:
- {name: good, methods: [A], access: {rules: [{deny: {}}]}}
- {name: bad, methods: [B], when: nothing == 1, access: {rules: [{allow: {}}]}}
- {name: bad-but-open, methods: [C], when: nothing == 1, failure: allow, access: {rules: [{deny: {}}]}}
- {name: bad-and-closed, methods: [D], when: nothing == 1, failure: deny, timeout: 1s}
- {name: bad-kind, methods: [C], timeout: 0s}
- {name: newer, methods: [E], region: eu, access: {default: deny, rules: []}}
- {name: newer-and-open, methods: [C], region: eu, failure: allow, access: {default: deny, rules: []}}
- {methods: [F], services: [], wasm: {}}
- {name: newer-kind, methods: [G], failure: deny, quota: 3}
`
	if _, err := Parse("p.yaml", []byte(text), nil); err == nil {
		t.Error("no error")
	}
	s, err := ParseOptions("p.yaml", []byte(text), Options{Partial: true})
	if err == nil || s == nil {
		t.Fatal(s, err)
	}
	for method, want := range map[string]codes.Code{"A": codes.PermissionDenied, "B": codes.Unavailable, "C": codes.OK, "D": codes.Unavailable, "E": codes.Unavailable, "F": codes.Unavailable, "G": codes.Unavailable} {
		_, _, err := (&visit{method: "/shop.Orders/" + method}).begin(s)
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
}

// TestLongKeys asks for keys that are as long as metadata may be.
func TestLongKeys(t *testing.T) {
	s := parsed(t, `
policies:
- {name: r, rate: {rate: 1/h, burst: 1, key: 'metadata["user"]'}}
- {name: c, concurrency: {limit: 1, key: 'metadata["user"]'}}
- {name: b, breaker: {per: tenant}}
`)
	long := strings.Repeat("x", 200<<10)
	for i := range 50 {
		v := &visit{tenant: long + fmt.Sprint(i), metadata: map[string][]string{"user": {long + fmt.Sprint(i)}}}
		if _, _, err := v.begin(s); err != nil {
			t.Fatal(i, err)
		}
		if _, _, err := v.begin(s); err == nil {
			t.Fatal("the same key is another one the second time")
		}
	}
	bytes := 0
	r, c, b := s.policies[0].step.(*rateStep), s.policies[1].step.(*concurrencyStep), s.policies[2].step.(*breakerStep)
	r.state.keys.eachKey(func(key string, _ *bucket) { bytes += len(key) })
	c.state.keys.eachKey(func(key string, _ *inFlightCalls) { bytes += len(key) })
	b.keys.eachKey(func(key string, _ *breaker) { bytes += len(key) })
	for key := range s.cache.slow {
		bytes += len(key.method) + len(key.tenant)
	}
	if bytes > 200*256 {
		t.Errorf("%d bytes of keys are kept", bytes)
	}
}

func TestChainsAreBounded(t *testing.T) {
	s := parsed(t, "policies: [{name: a, tenants: [gold], timeout: 1s}]")
	for i := range 3 * maxChains {
		h := (&visit{tenant: fmt.Sprint(i)}).exchange().Head
		if first := s.For(h); first != s.For(h) || first.Len() != 0 {
			t.Fatal("the chain is another one the second time")
		}
	}
	if n, fast := len(s.cache.slow), len(*s.cache.fast.Load()); n > maxChains || fast > maxChains {
		t.Errorf("%d and %d chains are remembered", n, fast)
	}
	if n := len(s.cache.chains); n != 1 {
		t.Errorf("%d chains were made, and one is enough", n)
	}
}

func TestNoAllocations(t *testing.T) {
	s := parsed(t, `
policies:
- {name: a, access: {default: deny, rules: [{allow: {tenants: [gold, "p*"], methods: [Place]}}]}}
- {name: r, rate: {rate: 1000000/s, burst: 1000000000}}
- {name: rt, rate: {rate: 1000000/s, burst: 1000000000, per: tenant}}
- {name: c, concurrency: {limit: 10}}
- {name: ct, concurrency: {limit: 10, per: method}}
- {name: t, timeout: 1s}
- {name: y, retry: {}}
- {name: h, hedge: {after: 1s}}
- {name: b, breaker: {}}
- {name: l, link: {latency: 1s}}
- {name: m, mirror: {to: next}}
- {name: s, sample: 100%}
- {name: f, fault: {delay: 1s}}
`)
	v := &visit{tenant: "gold"}
	given := v.exchange()
	x := &Exchange{}
	n := testing.AllocsPerRun(1000, func() {
		x.Reset()
		x.Head, x.Now, x.Rand, x.Payload = given.Head, given.Now, given.Rand, given.Payload
		c := s.For(x.Head)
		if err := c.Begin(x); err != nil {
			t.Fatal(err)
		}
		c.End(x, Outcome{Now: x.Now})
	})
	if n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
