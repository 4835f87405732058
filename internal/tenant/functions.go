package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// functionCounts are what a function of an app's version did on one node.
type functionCounts struct {
	App     string                `json:"app"`
	Version int                   `json:"version"`
	Name    string                `json:"name"`
	Counts  client.FunctionCounts `json:"counts"`
	Times   []time.Duration       `json:"times"` // of its last calls
}

// countsLimit is how long nodes may take to tell what their functions did.
const countsLimit = 2 * time.Second

// getFunctions lists the functions with what they did on all nodes.
func (t *Tenant) getFunctions(r *http.Request) ([]client.Function, error) {
	ctx, cancel := context.WithTimeout(r.Context(), countsLimit)
	defer cancel()
	told, missing := gatherCounts(ctx, t.members.others(t.config.Node), func(ctx context.Context, node outboard.NodeID) ([]functionCounts, error) {
		return t.peers.counts(ctx, node, r.URL.Query().Get("app"))
	})
	all := []client.Function{}
	for _, v := range t.chosen(r.URL.Query().Get("app")) {
		for _, name := range slices.Sorted(maps.Keys(v.functions)) {
			f := t.describeFunction(v.functions[name])
			told[t.config.Node] = []functionCounts{v.functions[name].counts()}
			addCounts(&f, told)
			f.Missing = missing
			all = append(all, f)
		}
	}
	return all, nil
}

// gatherCounts asks nodes at once. Missing are those that did not answer.
func gatherCounts(
	ctx context.Context, nodes []outboard.NodeID, ask func(context.Context, outboard.NodeID) ([]functionCounts, error),
) (told map[outboard.NodeID][]functionCounts, missing []outboard.NodeID) {
	told, failed := askAll(ctx, nodes, ask)
	return told, slices.Sorted(maps.Keys(failed))
}

// addCounts adds what nodes told of a function. Who still runs another version of its
// app counts once it runs this one.
func addCounts(f *client.Function, told map[outboard.NodeID][]functionCounts) {
	var times []weighed
	for _, node := range slices.Sorted(maps.Keys(told)) {
		for _, c := range told[node] {
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

// A weighed time stands for so many calls.
type weighed struct {
	took  time.Duration
	calls float64
}

// weigh lets a node's times stand for all of its calls, so that one with few calls does
// not count like one with many.
func weigh(times []time.Duration, calls uint64) []weighed {
	all := make([]weighed, 0, len(times))
	for _, took := range times {
		all = append(all, weighed{took, float64(calls) / float64(len(times))})
	}
	return all
}

// quantiles are the times that half of the calls, and all but a hundredth, took at most.
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

// describeFunction says what a function is.
func (t *Tenant) describeFunction(d *deployed) client.Function {
	f := client.Function{
		App: d.version.spec.Name, Version: d.version.number, Name: d.name, Tenant: t.config.Tenant, Module: d.module, Size: outboard.Bytes(d.size),
		Entry: d.spec.Entry, HTTP: d.spec.HTTP, Imports: []string{}, Limits: limitsOf(d.Limits(), d.spec.Limits.Window),
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

// counts are what a function did here.
func (d *deployed) counts() functionCounts {
	counts := d.Counts()
	running, waiting, idle := d.Live()
	return functionCounts{
		App: d.version.spec.Name, Version: d.version.number, Name: d.name, Times: d.meter.last(),
		Counts: client.FunctionCounts{
			Calls: d.meter.calls.Load(), Errors: d.meter.failed.Load(), Running: running, Waiting: waiting, Instances: idle + running,
			Cold: 1, Cloned: uint64(counts.Cloned), Reset: uint64(counts.Reset), Fuel: uint64(counts.Fuel),
		},
	}
}

// countsForPeer tells another node what the functions of an app did here, of all apps
// where app is "".
func (t *Tenant) countsForPeer(_ context.Context, head, _ []byte) ([]byte, any, error) {
	var app string
	if err := json.Unmarshal(head, &app); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "counts", "%w", err)
	}
	all := []functionCounts{}
	for _, v := range t.chosen(app) {
		for _, f := range v.functions {
			all = append(all, f.counts())
		}
	}
	text, err := json.Marshal(all)
	return text, nil, err
}
