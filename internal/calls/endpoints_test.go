package calls

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// table is what the pool was told.
type table struct {
	processes map[string]int // of the endpoints
	err       error
}

func (p *table) Offer(_ context.Context, e services.Endpoint) error {
	if p.err == nil {
		p.processes[e.ID] = e.Process
	}
	return p.err
}

func (p *table) Withdraw(_ context.Context, id string) error {
	delete(p.processes, id)
	return nil
}

// moving is a program that was harbour/1 on process 1 and changes over to process 2.
type moving struct {
	t     *testing.T
	told  *table
	r     *endpointTable
	later string // its ID on process 2
}

func newMoving(t *testing.T) *moving {
	m := &moving{t: t, told: &table{processes: map[string]int{}}, r: newEndpointTable("harbour", nil)}
	m.r.pool = m.told
	m.offer(1, "")
	return m
}

func (m *moving) offer(process int, previous string) {
	m.t.Helper()
	e, err := m.r.offer(m.t.Context(), process, &services.Endpoint{PID: 7}, previous)
	if err != nil {
		m.t.Fatal(err)
	}
	m.later = e.ID
}

func (m *moving) enter() { m.offer(2, "harbour/1") }

func (m *moving) settle() {
	if m.r.settled(2, m.later) != 0 {
		m.try(m.r.publish(m.t.Context(), m.later))
	}
}

func (m *moving) firstEnds()     { m.try(m.r.withdrawAll(m.t.Context(), 1)) }
func (m *moving) secondEnds()    { m.try(m.r.withdrawAll(m.t.Context(), 2)) }
func (m *moving) firstLetsGo()   { m.try(m.r.withdraw(m.t.Context(), 1, "harbour/1")) }
func (m *moving) programIsGone() { m.try(m.r.withdraw(m.t.Context(), 2, m.later)) }

func (m *moving) try(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Error(err)
	}
}

// A program that changes over is offered by the second process, once, in whatever
// order the end of the first comes among the steps; and is gone when both are.
func TestEndpointTable(t *testing.T) {
	type steps []func(*moving)
	enter, settle, ends, letsGo := (*moving).enter, (*moving).settle, (*moving).firstEnds, (*moving).firstLetsGo
	second, gone := (*moving).secondEnds, (*moving).programIsGone
	for name, test := range map[string]struct {
		steps steps
		want  map[string]int
	}{
		"in order":                       {steps{enter, settle, letsGo, ends}, map[string]int{"harbour/1": 2}},
		"until it is settled":            {steps{enter}, map[string]int{"harbour/1": 1}},
		"the first ends before":          {steps{ends, enter, settle}, map[string]int{"harbour/2": 2}},
		"the first ends between":         {steps{enter, ends, settle}, map[string]int{"harbour/1": 2}},
		"the first lets go between":      {steps{enter, letsGo, settle, ends}, map[string]int{"harbour/1": 2}},
		"the first ends, not settled":    {steps{enter, letsGo, ends}, map[string]int{"harbour/1": 2}},
		"the second ends between":        {steps{enter, second}, map[string]int{"harbour/1": 1}},
		"the second ends, then first":    {steps{enter, second, ends}, map[string]int{}},
		"both end, first first":          {steps{enter, ends, second}, map[string]int{}},
		"the program ends":               {steps{enter, settle, gone, letsGo}, map[string]int{}},
		"the program ends between":       {steps{enter, gone, letsGo}, map[string]int{}},
		"it ends, the first hears of it": {steps{enter, letsGo, gone, settle}, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t)
			for _, step := range test.steps {
				step(m)
			}
			if diff := cmp.Diff(test.want, m.told.processes); diff != "" {
				t.Error(diff)
			}
			if len(m.r.all) != len(test.want) {
				t.Errorf("%d endpoints are left, want %d", len(m.r.all), len(test.want))
			}
		})
	}
}

// An offer that the pool did not hear of leaves nothing, and one of a process that has
// ended is none.
func TestEndpointTableRefuses(t *testing.T) {
	m := newMoving(t)
	m.told.err = errors.New("the pool is not there")
	if _, err := m.r.offer(t.Context(), 2, &services.Endpoint{}, ""); err == nil {
		t.Error("an offer was not made, and nobody says so")
	}
	m.told.err = nil
	m.secondEnds()
	if _, err := m.r.offer(t.Context(), 2, &services.Endpoint{}, ""); err == nil {
		t.Error("a process that has ended offers")
	}
	if diff := cmp.Diff(map[string]int{"harbour/1": 1}, m.told.processes); diff != "" || len(m.r.all) != 1 {
		t.Errorf("%d endpoints are left: %s", len(m.r.all), diff)
	}
}

// A process that has passed its counters gets no links: it ends as soon as those that it has are
// over.
func TestNoLinkToProcessThatHasLeft(t *testing.T) {
	c := &child{host: &Host{}, number: 1}
	c.markLeft()
	if err := c.passLink(nil); outboard.KindOf(err) != outboard.NotFound {
		t.Error(err)
	}
}

// A server is not offered under a name that no call can have, nor at an address to which no
// connection can be made: it would be listed, and never called.
func TestNamesOfAddedServers(t *testing.T) {
	h := new(Host) // it has no table: a name that is not refused would be written there
	for _, name := range []string{"bad name", "", "shop.Cart ", "sh\nop", "shöp"} {
		e := services.Endpoint{Address: "127.0.0.1:50051", Services: []string{"shop.Cart", name}}
		if _, err := h.AddServer(t.Context(), e); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q: %v, want Invalid", name, err)
		}
	}
	for _, address := range []string{"localhost", "localhost:", "localhost:0", "localhost:99999", "localhost:-1", "a:b:c"} {
		e := services.Endpoint{Address: address, Services: []string{"shop.Cart"}}
		if _, err := h.AddServer(t.Context(), e); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q: %v, want Invalid", address, err)
		}
	}
	for _, name := range []string{"shop.v1.Cart", "grpc.health.v1.Health", "a_b-c/D9"} {
		if !isServiceName(name) {
			t.Errorf("%q is refused", name)
		}
	}
}
