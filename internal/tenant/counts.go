package tenant

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/tenant/peer"
)

// countsTimeout is how long nodes may take to report the counts of their functions.
const countsTimeout = 2 * time.Second

// gatherCounts calls f for several nodes concurrently. missing are the nodes that did not answer.
func gatherCounts(
	ctx context.Context, nodes []outboard.NodeID, f func(context.Context, outboard.NodeID) ([]peer.Counts, error),
) (counts map[outboard.NodeID][]peer.Counts, missing []outboard.NodeID) {
	counts, failed := peer.CallAll(ctx, nodes, f)
	return counts, slices.Sorted(maps.Keys(failed))
}

// addCounts adds the counts of all nodes to a function. The counts of another version are left
// out.
func addCounts(f *client.Function, counts map[outboard.NodeID][]peer.Counts) {
	var times []weighed
	for _, node := range slices.Sorted(maps.Keys(counts)) {
		for _, c := range counts[node] {
			if c.App != f.App || c.Version != f.Version || c.Name != f.Name {
				continue
			}
			own := weigh(c.Times, c.Counts.Calls)
			c.Counts.P50, c.Counts.P99 = quantiles(own)
			f.Nodes = append(f.Nodes, client.NodeCounts{Node: node, FunctionCounts: c.Counts})
			f.Calls += c.Counts.Calls
			f.Errors += c.Counts.Errors
			f.Running += c.Counts.Running
			f.Waiting += c.Counts.Waiting
			f.Instances += c.Counts.Instances
			f.Cold += c.Counts.Cold
			f.Cloned += c.Counts.Cloned
			f.Reset += c.Counts.Reset
			f.Fuel += c.Counts.Fuel
			times = append(times, own...)
		}
	}
	f.P50, f.P99 = quantiles(times)
}

// weighed is a duration and the number of calls that it represents.
type weighed struct {
	took  time.Duration
	calls float64
}

// weigh divides the number of a node's calls evenly among its durations, so that a node with few
// calls weighs less than one with many.
func weigh(times []time.Duration, calls uint64) []weighed {
	all := make([]weighed, 0, len(times))
	for _, took := range times {
		all = append(all, weighed{took, float64(calls) / float64(len(times))})
	}
	return all
}

// quantiles returns the median and the 99th percentile of the durations.
func quantiles(times []weighed) (p50, p99 client.Duration) {
	slices.SortFunc(times, func(a, b weighed) int { return cmp.Compare(a.took, b.took) })
	var calls, seen float64
	for _, t := range times {
		calls += t.calls
	}
	for _, t := range times {
		if seen <= calls*0.5 {
			p50 = client.Duration(t.took)
		}
		if seen <= calls*0.99 {
			p99 = client.Duration(t.took)
		}
		seen += t.calls
	}
	return p50, p99
}

// describe returns a function in the form of the local API.
func (d *deployed) describe() client.Function {
	f := client.Function{
		App: d.version.Spec.Name, Version: d.version.Number, Name: d.name, Tenant: d.tenant.config.Tenant, Module: d.module,
		Size: outboard.Bytes(d.size), Entry: d.spec.Entry, HTTP: d.http, Imports: []string{},
		Limits: limitsOf(d.Limits(), d.spec.Limits.Window),
	}
	for _, i := range d.spec.Imports {
		text := i.String()
		if i.Share {
			text += " shared"
		}
		f.Imports = append(f.Imports, text)
	}
	return f
}

// localCounts returns the counts of an app's functions on this node, of all apps for "".
func localCounts(apps *deployments, app string) []peer.Counts {
	all := []peer.Counts{}
	for _, v := range apps.Select(app) {
		for _, f := range v.Functions {
			all = append(all, f.counts())
		}
	}
	return all
}

// counts returns the function's counts on this node.
func (d *deployed) counts() peer.Counts {
	counts := d.Counts()
	running, waiting, idle := d.Live()
	return peer.Counts{
		App: d.version.Spec.Name, Version: d.version.Number, Name: d.name, Times: d.meter.last(),
		Counts: client.FunctionCounts{
			Calls: d.meter.calls.Load(), Errors: d.meter.failed.Load(), Running: running, Waiting: waiting, Instances: idle + running,
			Cold: 1, Cloned: uint64(counts.Cloned), Reset: uint64(counts.Reset), Fuel: uint64(counts.Fuel),
		},
	}
}
