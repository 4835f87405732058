package policy

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plainBucket is a token bucket as one would write it down: tokens grow with time up
// to the burst, and a call takes one. It counts in fractions, and so without error.
type plainBucket struct {
	tokens *big.Rat
	last   time.Duration
}

func (b *plainBucket) take(at time.Duration, perHour int64, burst int64) bool {
	limit := big.NewRat(burst, 1)
	if b.tokens == nil {
		b.tokens, b.last = limit, at
	}
	b.earn(at, perHour)
	if b.tokens.Cmp(limit) > 0 {
		b.tokens = limit
	}
	if b.tokens.Cmp(big.NewRat(1, 1)) < 0 {
		return false
	}
	b.tokens = new(big.Rat).Sub(b.tokens, big.NewRat(1, 1))
	return true
}

func (b *plainBucket) earn(at time.Duration, perHour int64) {
	if b.tokens == nil {
		return
	}
	b.tokens = new(big.Rat).Add(b.tokens, big.NewRat(perHour*int64(at-b.last), int64(time.Hour)))
	b.last = at
}

// carry hands the bucket over: one that is full is as good as one that nobody used.
func (b *plainBucket) carry(burst int64) {
	if b.tokens != nil && b.tokens.Cmp(big.NewRat(burst, 1)) >= 0 {
		b.tokens = nil
	}
}

// TestBucket compares the bucket with the plain one, over random times, rates, bursts
// and swaps. Times are such that the tokens of both are whole units.
func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &Table{}
		plain := map[string]*plainBucket{}
		per, tenants := "per: tenant", []string{"a", "b"}
		if rapid.Bool().Draw(t, "shared") {
			per, tenants = "per: all", []string{"a"}
		}
		now, perHour, burst := time.Duration(0), int64(0), int64(0)
		swap := func() {
			for _, b := range plain {
				b.earn(now, perHour)
			}
			if rapid.IntRange(0, 2).Draw(t, "hand over") == 0 {
				table = handedOver(t, table, start().Add(now))
				for _, b := range plain {
					b.carry(burst)
				}
			}
			// At these rates whole units are made in 1/64 second.
			perHour = rapid.SampledFrom([]int64{3600, 7200, 18000, 36000, 360_000, 3_600_000}).Draw(t, "rate")
			burst = rapid.Int64Range(1, 20).Draw(t, "burst")
			text := fmt.Sprintf("policies: [{name: r, rate: {rate: %d/h, burst: %d, %s}}]", perHour, burst, per)
			s, err := Parse("r", []byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			table.Apply(s, start().Add(now))
		}
		swap()
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			if rapid.IntRange(0, 9).Draw(t, "swap") == 0 {
				swap()
			}
			pause := rapid.SampledFrom([]int{0, 1, 2, 64, 100, 6400}).Draw(t, "pause")
			now += time.Duration(pause) * (time.Second / 64)
			tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
			if plain[tenant] == nil {
				plain[tenant] = &plainBucket{}
			}
			_, err := (&visit{tenant: tenant, at: now}).run(table.Set())
			if got, want := err == nil, plain[tenant].take(now, perHour, burst); got != want {
				t.Fatalf("at %v, tenant %s, %d/h, burst %d: got %v, want %v", now, tenant, perHour, burst, got, want)
			}
		}
	})
}

// TestLineNeverGivesMore holds that rounding is to the user's disadvantage, at any
// rate and for years.
func TestLineNeverGivesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hour := rapid.Uint64Range(unitsPerToken, 3600*1e7*unitsPerToken).Draw(t, "hour")
		l := refillCurve{since: rapid.Int64Range(0, 1<<40).Draw(t, "since"), produced: rapid.Uint64().Draw(t, "made"), unitsPerHour: hour}
		now := rapid.Int64Range(0, 1<<62).Draw(t, "now")
		exact := new(big.Int).Mul(big.NewInt(max(0, now-l.since)), new(big.Int).SetUint64(hour))
		exact.Div(exact, big.NewInt(int64(time.Hour)))
		exact.Add(exact, new(big.Int).SetUint64(l.produced))
		exact.And(exact, new(big.Int).SetUint64(1<<64-1))
		if got := l.at(now); got != exact.Uint64() {
			t.Fatalf("got %d, want %d", got, exact)
		}
	})
}

// TestIdleBucket holds that a bucket that nobody touched for a day is full and no
// more than full.
func TestIdleBucket(t *testing.T) {
	s := parsed(t, "policies: [{name: r, rate: {rate: 10000000/s, burst: 2}}]")
	for _, at := range []time.Duration{0, 24 * time.Hour, 365 * 24 * time.Hour} {
		for n, want := range []bool{true, true, false} {
			if _, err := (&visit{at: at}).run(s); (err == nil) != want {
				t.Errorf("call %d after %v: got %v", n, at, err)
			}
		}
	}
}

// TestRateOfThePool shares one rate among the nodes: together they admit no more than it, and
// their shares follow their number.
func TestRateOfThePool(t *testing.T) {
	const text = "policies: [{name: r, rate: {rate: 600/s, burst: 60, scope: %s}}]"
	admitted := func(s *Set, nodes int, from, until time.Duration) int {
		n := 0
		for at := from; at < until; at += time.Millisecond {
			v := &visit{at: at}
			x := v.exchange()
			x.Nodes = nodes
			if s.For(x.Head).Begin(x) == nil {
				n++
			}
		}
		return n
	}
	for nodes, want := range map[int]int{0: 660, 1: 660, 2: 330, 3: 220, 6: 110} {
		s := parsed(t, fmt.Sprintf(text, "pool"))
		if got := admitted(s, nodes, 0, time.Second); got < want-1 || got > want {
			t.Errorf("one of %d nodes admits %d calls in a second, want %d", nodes, got, want)
		}
		// A node joins: the shares shrink at once.
		if got, want := admitted(s, 2*max(nodes, 1), time.Second, 2*time.Second), 600/(2*max(nodes, 1)); got < want-1 || got > want+1 {
			t.Errorf("one of twice %d nodes admits %d calls in a second, want %d", nodes, got, want)
		}
	}
	if got := admitted(parsed(t, fmt.Sprintf(text, "node")), 6, 0, time.Second); got < 659 || got > 660 {
		t.Errorf("a rate per node admits %d calls, want 660", got)
	}
	// A call costs a token for each node: more than the burst, which must not refuse all calls.
	if got := admitted(parsed(t, "policies: [{name: r, rate: {rate: 600/s, burst: 1, scope: pool}}]"), 3, 0, time.Second); got < 198 || got > 201 {
		t.Errorf("one of three nodes admits %d calls of a burst of 1 in a second, want 200", got)
	}
}
