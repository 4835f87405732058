package tenant

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
)

// How far a node is with version 3 of an app.
func TestStage(t *testing.T) {
	for name, test := range map[string]struct {
		stage stage
		want  client.AppNode
	}{
		"it has not heard of it":      {stage{}, client.AppNode{State: client.AppStarting}},
		"it serves the one before":    {stage{Wanted: 2, Serves: 2}, client.AppNode{State: client.AppStarting, Serves: 2}},
		"the one before failed":       {stage{Wanted: 2, Serves: 1, Failure: "no room"}, client.AppNode{State: client.AppStarting, Serves: 1}},
		"it failed":                   {stage{Wanted: 3, Serves: 2, Failure: "no room"}, client.AppNode{State: client.AppFailed, Serves: 2, Reason: "no room"}},
		"it is built, and not served": {stage{Wanted: 3, Serves: 2}, client.AppNode{State: client.AppStarting, Serves: 2}},
		"it serves it":                {stage{Wanted: 3, Serves: 3}, client.AppNode{State: client.AppReady, Serves: 3}},
		"it serves a later one":       {stage{Wanted: 4, Serves: 4}, client.AppNode{State: client.AppReady, Serves: 4}},
		"a later one failed":          {stage{Wanted: 4, Serves: 2, Failure: "no room"}, client.AppNode{State: client.AppFailed, Serves: 2, Reason: "no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.stage.with(3), test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of each node it is said how far it is, or why that is not known.
func TestPooled(t *testing.T) {
	var none *pooled
	if got := none.with("shop", 3); got != nil {
		t.Errorf("nobody was asked: %+v", got)
	}
	p := &pooled{
		told: map[outboard.NodeID]map[string]stage{
			"harbour": {"shop": {Wanted: 3, Serves: 3}, "bank": {Wanted: 1, Serves: 1}},
			"buoy":    {},
		},
		failed: map[outboard.NodeID]error{"dinghy": errors.New("gone"), "anchor": errOld},
	}
	want := []client.AppNode{
		{Node: "anchor", State: client.AppUnknown, Reason: "its program is too old to tell"},
		{Node: "buoy", State: client.AppStarting},
		{Node: "dinghy", State: client.AppSilent, Reason: "gone"},
		{Node: "harbour", State: client.AppReady, Serves: 3},
	}
	if diff := cmp.Diff(p.with("shop", 3), want); diff != "" {
		t.Error(diff)
	}
}

// What a node serves, or may serve since it is too old to tell, no other node has to take.
func TestServe(t *testing.T) {
	shop := &catalog.Version{App: manifest.App{Name: "shop"}}
	for name, test := range map[string]struct {
		pooled pooled
		want   bool
	}{
		"nobody answers":      {pooled{failed: map[outboard.NodeID]error{"dinghy": errors.New("gone")}}, false},
		"one makes it ready":  {pooled{told: map[outboard.NodeID]map[string]stage{"dinghy": {"bank": {Serves: 1}}}}, false},
		"one serves it":       {pooled{told: map[outboard.NodeID]map[string]stage{"dinghy": {"shop": {Serves: 1}}, "buoy": {}}}, true},
		"one can't tell, old": {pooled{failed: map[outboard.NodeID]error{"dinghy": errOld}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.pooled.serve([]*catalog.Version{shop}); got["shop"] != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A process tells others, and whoever asks it, how far it is; a node that is not there is named.
func TestTellsStages(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nfunctions: {cart: {module: guest.wasm}}\n", nil)
	text, _, err := b.tenant.stagesForPeer(t.Context(), nil, nil)
	var told map[string]stage
	if err := errors.Join(err, json.Unmarshal(text, &told)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(told, map[string]stage{"shop": {Wanted: 1, Serves: 1}}); diff != "" {
		t.Error(diff)
	}
	b.tenant.members.set([]outboard.Node{{ID: "harbour", Boot: "1"}, {ID: "dinghy", Boot: "1"}})
	want := []client.AppNode{
		{Node: "dinghy", State: client.AppSilent, Reason: "node dinghy: this process has no node that could reach it"},
		{Node: "harbour", State: client.AppReady, Serves: 1},
	}
	var nodes []client.AppNode
	if err := b.ask("GET", "/v1/apps/shop/nodes", nil, &nodes); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(nodes, want); diff != "" {
		t.Error(diff)
	}
	var all []client.App
	if err := b.ask("GET", "/v1/apps?nodes=true", nil, &all); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if diff := cmp.Diff(all[0].Nodes, want); diff != "" {
		t.Error(diff)
	}
	var plain []client.App
	if err := b.ask("GET", "/v1/apps", nil, &plain); err != nil || plain[0].Nodes != nil {
		t.Errorf("who did not ask is told of %+v, %v", plain[0].Nodes, err)
	}
}
