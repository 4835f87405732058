package pool_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
)

// A helper process of a node follows the pool without being a member: it knows the nodes that are
// present, and learns when one leaves.
func TestMembersFollow(t *testing.T) {
	ctx := testContext(t)
	harbour, dinghy := newTestNode(t, "harbour", 1), newTestNode(t, "dinghy", 0)
	harbour.up(ctx, nil)
	m, err := pool.Follow(ctx, pool.Options{State: harbour.state, Identity: harbour.id, Self: outboard.Node{Boot: "helper"}, Logger: testLog()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, ok := m.Node("harbour"); !ok || len(n.Devices) != 1 {
		t.Errorf("it knows the node as %+v, %v", n, ok)
	}
	dinghy.up(ctx, harbour)
	eventually(ctx, t, "the other node", func() bool { _, ok := m.Node("dinghy"); return ok })
	changed := m.Changed()
	dinghy.stop()
	<-changed
	eventually(ctx, t, "one node", func() bool { return len(m.Nodes()) == 1 })
	eventually(ctx, t, "the member's own view", func() bool { return len(harbour.Nodes()) == 1 })
	if len(harbour.Leases()) != 0 {
		t.Error("who follows has a lease")
	}
}

func TestFollowNeedsItsOptions(t *testing.T) {
	ctx := testContext(t)
	harbour := newTestNode(t, "harbour", 0)
	harbour.up(ctx, nil)
	for want, opts := range map[string]pool.Options{
		"no state":    {Identity: harbour.id, Self: outboard.Node{Boot: "b"}},
		"no identity": {State: harbour.state, Self: outboard.Node{Boot: "b"}},
		"no boot":     {State: harbour.state, Identity: harbour.id},
	} {
		if _, err := pool.Follow(ctx, opts); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
		if _, err := pool.Open(ctx, opts); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("Open without it: %v", err)
		}
	}
}

// All nodes know the links that one has measured, in that node's name whatever they say, and no
// more than a bounded number of them.
func TestLinks(t *testing.T) {
	ctx := testContext(t)
	harbour := newTestNode(t, "harbour", 0)
	harbour.up(ctx, nil)
	if err := harbour.PublishLinks(ctx, []client.Link{{From: "admiral", To: "dinghy", RTT: time.Millisecond}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the link", func() bool { return len(harbour.Links()) == 1 })
	if l := harbour.Links()[0]; l.From != "harbour" || l.To != "dinghy" || l.RTT != time.Millisecond {
		t.Errorf("the link is %+v", l)
	}
	if err := harbour.PublishLinks(ctx, make([]client.Link, 1000), time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "other links", func() bool { return len(harbour.Links()) > 1 })
	if n := len(harbour.Links()); n >= 1000 {
		t.Errorf("there are %d links of one node", n)
	}
	// What a hostile node writes is ignored, and the pool goes on.
	before := len(harbour.Links())
	for _, hostile := range []string{"{", "[" + strings.Repeat("{},", 2000) + "{}]"} {
		if _, err := harbour.state.Put(ctx, "network/harbour", []byte(hostile), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := harbour.PublishLinks(ctx, []client.Link{{To: "buoy"}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the last link", func() bool { return len(harbour.Links()) == 1 })
	if before < 2 || harbour.Links()[0].To != "buoy" {
		t.Errorf("the links are %+v", harbour.Links())
	}
}

// The metrics of a pool end with it: the next one may register them again.
func TestPoolMetrics(t *testing.T) {
	ctx := testContext(t)
	registry := prometheus.NewRegistry()
	for range 2 {
		harbour := newTestNode(t, "harbour", 2)
		harbour.opts.Metrics = registry
		harbour.up(ctx, nil)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		if values["outboard_pool_nodes"] != 1 || values["outboard_pool_devices"] != 2 || values["outboard_pool_leases"] != 0 {
			t.Errorf("the metrics are %v", values)
		}
		second := newTestNode(t, "second", 0)
		second.opts.Metrics = registry
		if err := second.enter(ctx, pool.EnterOptions{}); err == nil {
			t.Error("two pools have the same metrics")
		}
		harbour.stop()
	}
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("after the end there are %d metrics: %v", len(families), errors.Join(err))
	}
}
