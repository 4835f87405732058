package tenant

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/tenant/peer"
)

const us = client.Duration(time.Microsecond)

// What nodes tell of a function is added up, each node counting for as many calls as it
// had; another version's calls and other functions' are not among it.
func TestCountsOfAllNodes(t *testing.T) {
	times := func(n int, took client.Duration) (all []time.Duration) {
		for range n {
			all = append(all, time.Duration(took))
		}
		return all
	}
	counts := func(calls uint64) client.FunctionCounts {
		return client.FunctionCounts{Calls: calls, Errors: 1, Running: 2, Waiting: 3, Instances: 4, Cold: 1, Cloned: 5, Reset: 6, Fuel: 7}
	}
	told := map[outboard.NodeID][]peer.Counts{
		"harbour": {
			{App: "shop", Version: 2, Name: "cart", Counts: counts(9800), Times: times(128, 5*us)},
			{App: "shop", Version: 2, Name: "price", Counts: counts(1)},
		},
		"dinghy": {{App: "shop", Version: 2, Name: "cart", Counts: counts(200), Times: times(128, 90*us)}},
		"buoy":   {{App: "shop", Version: 1, Name: "cart", Counts: counts(7)}},
	}
	f := client.Function{App: "shop", Version: 2, Name: "cart"}
	addCounts(&f, told)
	with := func(c client.FunctionCounts, took client.Duration) client.FunctionCounts {
		c.P50, c.P99 = took, took
		return c
	}
	want := client.Function{
		App: "shop", Version: 2, Name: "cart",
		FunctionCounts: client.FunctionCounts{
			Calls: 10000, Errors: 2, Running: 4, Waiting: 6, Instances: 8, Cold: 2, Cloned: 10, Reset: 12, Fuel: 14, P50: 5 * us, P99: 90 * us,
		},
		Nodes: []client.NodeCounts{{Node: "dinghy", FunctionCounts: with(counts(200), 90*us)}, {Node: "harbour", FunctionCounts: with(counts(9800), 5*us)}},
	}
	if diff := cmp.Diff(f, want); diff != "" {
		t.Error(diff)
	}
}

func TestQuantiles(t *testing.T) {
	for name, test := range map[string]struct {
		times    []time.Duration
		p50, p99 client.Duration
	}{
		"none":  {},
		"one":   {[]time.Duration{7}, 7, 7},
		"three": {[]time.Duration{9, 1, 4}, 4, 9},
	} {
		t.Run(name, func(t *testing.T) {
			p50, p99 := quantiles(weigh(test.times, 1000))
			if p50 != test.p50 || p99 != test.p99 {
				t.Errorf("got %d and %d, want %d and %d", p50, p99, test.p50, test.p99)
			}
		})
	}
}

// Nodes that do not answer in time are named, and the caller does not wait for them.
func TestCountsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), countsTimeout)
		defer cancel()
		begin := time.Now()
		told, missing := gatherCounts(ctx, []outboard.NodeID{"harbour", "dinghy", "buoy"}, func(ctx context.Context, node outboard.NodeID) ([]peer.Counts, error) {
			switch node {
			case "harbour":
				<-ctx.Done()
				return nil, ctx.Err()
			case "dinghy":
				return nil, errors.New("gone")
			}
			return []peer.Counts{{App: "shop"}}, nil
		})
		if diff := cmp.Diff(missing, []outboard.NodeID{"dinghy", "harbour"}); diff != "" {
			t.Error(diff)
		}
		if len(told) != 1 || len(told["buoy"]) != 1 || time.Since(begin) != countsTimeout {
			t.Errorf("told %+v after %v", told, time.Since(begin))
		}
	})
}

// A call that was refused says nothing of how long calls take.
func TestRefusedHasNoTime(t *testing.T) {
	var m meter
	m.record(7, nil)
	m.record(0, outboard.Errorf(outboard.Busy, "", "too many"))
	if diff := cmp.Diff(m.last(), []time.Duration{7}); diff != "" || m.calls.Load() != 2 || m.failed.Load() != 1 {
		t.Errorf("%d calls, %d badly: %s", m.calls.Load(), m.failed.Load(), diff)
	}
}

// A request for the log of an unknown app or function fails at once.
func TestLogsOfNothing(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nfunctions: {cart: {module: guest.wasm}}\n", nil)
	for path, want := range map[string]string{
		"/v1/apps/shop/logs?function=carts&follow=true": `app shop has no function "carts": it has cart`,
		"/v1/apps/shops/logs":                           `there is no app "shops" here: see ` + "`outboard apps`",
	} {
		if err := b.ask("GET", path, nil, nil); outboard.KindOf(err) != outboard.NotFound || err.Error() != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

func TestNoSuchWorkflow(t *testing.T) {
	b := openShop(t)
	err := b.ask("POST", "/v1/apps/shop/workflows/orders/executions", nil, nil)
	if want := `start shop/orders: app shop has no workflow "orders": it has order`; outboard.KindOf(err) != outboard.NotFound || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
