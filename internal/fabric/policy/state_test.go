package policy

import (
	"bytes"
	"encoding/gob"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// handedOver is the table of another process, which has taken over what t's policies
// hold.
func handedOver(tb interface{ Fatal(...any) }, t *Table, now time.Time) *Table {
	next := &Table{}
	if t.Set() == nil {
		return next
	}
	s, err := Parse(t.Set().Name(), t.Set().Source(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	var wire bytes.Buffer
	if err := gob.NewEncoder(&wire).Encode(t.ExportState(now)); err != nil {
		tb.Fatal(err)
	}
	var all SetState
	if err := gob.NewDecoder(&wire).Decode(&all); err != nil {
		tb.Fatal(err)
	}
	next.Apply(s, now)
	next.ImportState(all, now)
	return next
}

// A budget that is spent stays so in the process that takes over, and another kind of
// policy of that name begins anew.
func TestBudgetIsHandedOver(t *testing.T) {
	table := &Table{}
	table.Apply(parsed(t, "policies: [{name: r, retry: {attempts: 9, budget: {ratio: 0%, reserve: 2}}}]"), start())
	tries := func() (n int) {
		x, c, err := (&visit{}).begin(table.Set())
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, ok := x.Plan.Retry.Next(x, n+1, errUnavailable); !ok {
				break
			}
			n++
		}
		c.End(x, Outcome{Now: start()})
		return n
	}
	if n := tries(); n != 2 {
		t.Fatalf("%d extra attempts", n)
	}
	table = handedOver(t, table, start())
	if n := tries(); n != 0 {
		t.Errorf("%d extra attempts after the budget was spent", n)
	}
	carried := table.ExportState(start())
	table = &Table{}
	table.Apply(parsed(t, "policies: [{name: r, hedge: {after: 1ms, budget: {ratio: 0%, reserve: 2}}}]"), start())
	table.ImportState(carried, start())
	if spent := table.ExportState(start())["r"].Spent; spent != 0 {
		t.Errorf("a policy of another kind has spent %d", spent)
	}
}

// Calls that another process has under way count into the limits here.
func TestSetRemoteInFlight(t *testing.T) {
	text := "policies: [{name: all, concurrency: {limit: 3}}, {name: each, concurrency: {limit: 2, per: tenant}}]"
	old, next := &Table{}, &Table{}
	old.Apply(parsed(t, text), start())
	next.Apply(parsed(t, text), start())
	before := &visit{tenant: "a"}
	x, c, err := before.begin(old.Set())
	if err != nil {
		t.Fatal(err)
	}
	next.SetRemoteInFlight(old.InFlightCalls(), start())
	fits := func(tenant string, want ...codes.Code) {
		t.Helper()
		var ends []func()
		for i, w := range want {
			v := &visit{tenant: tenant}
			x, c, err := v.begin(next.Set())
			if code(err) != w {
				t.Errorf("tenant %s, call %d: %v", tenant, i, err)
			}
			if err == nil {
				ends = append(ends, func() { v.end(x, c) })
			}
		}
		for _, end := range ends {
			end()
		}
	}
	fits("a", codes.OK, codes.ResourceExhausted)
	fits("b", codes.OK, codes.OK, codes.ResourceExhausted)
	before.end(x, c)
	next.SetRemoteInFlight(old.InFlightCalls(), start())
	fits("a", codes.OK, codes.OK, codes.ResourceExhausted)
}

// A stream that comes from another process is counted though it be one too many, and
// only by what lasts; what depends on its first message keeps it away.
func TestMovedStream(t *testing.T) {
	table := &Table{}
	table.Apply(parsed(t, `
policies:
- {name: none, access: {rules: [], default: deny}}
- {name: few, rate: {rate: 1/h, burst: 1}}
- {name: one, concurrency: {limit: 1}}
`), start())
	move := func() (*Exchange, *Chain, error) {
		v := &visit{}
		x := v.exchange()
		x.Moved = true
		c := table.Set().For(x.Head)
		err := c.Begin(x)
		return x, c, err
	}
	x, c, err := move()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := move(); err != nil {
		t.Fatal(err)
	}
	if n := inFlight(table.Set()); n != 2 {
		t.Errorf("%d are counted", n)
	}
	c.End(x, Outcome{Moved: true, Now: start()})
	if n := inFlight(table.Set()); n != 1 {
		t.Errorf("%d are counted after one has left", n)
	}
}
