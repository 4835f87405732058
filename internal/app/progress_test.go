package app

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
)

// How far a node is with version 3 of an app.
func TestNodeState(t *testing.T) {
	for name, test := range map[string]struct {
		progress Progress
		want     client.AppNode
	}{
		"it has not heard of it":      {Progress{}, client.AppNode{State: client.AppStarting}},
		"it serves the one before":    {Progress{Built: 2, Serving: 2}, client.AppNode{State: client.AppStarting, Serves: 2}},
		"the one before failed":       {Progress{Built: 2, Serving: 1, Failure: "no room"}, client.AppNode{State: client.AppStarting, Serves: 1}},
		"it failed":                   {Progress{Built: 3, Serving: 2, Failure: "no room"}, client.AppNode{State: client.AppFailed, Serves: 2, Reason: "no room"}},
		"it is built, and not served": {Progress{Built: 3, Serving: 2}, client.AppNode{State: client.AppStarting, Serves: 2}},
		"it serves it":                {Progress{Built: 3, Serving: 3}, client.AppNode{State: client.AppReady, Serves: 3}},
		"it serves a later one":       {Progress{Built: 4, Serving: 4}, client.AppNode{State: client.AppReady, Serves: 4}},
		"a later one failed":          {Progress{Built: 4, Serving: 2, Failure: "no room"}, client.AppNode{State: client.AppFailed, Serves: 2, Reason: "no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.progress.NodeState(3), test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of each node it is said how far it is, or why that is not known.
func TestSurvey(t *testing.T) {
	var none *Survey
	if got := none.NodeStates("shop", 3); got != nil {
		t.Errorf("no node was asked: %+v", got)
	}
	p := &Survey{
		Nodes: map[outboard.NodeID]map[string]Progress{
			"harbour": {"shop": {Built: 3, Serving: 3}, "bank": {Built: 1, Serving: 1}},
			"buoy":    {},
		},
		Failed: map[outboard.NodeID]error{"dinghy": errors.New("gone"), "anchor": ErrOlder},
	}
	want := []client.AppNode{
		{Node: "anchor", State: client.AppUnknown, Reason: "its program is too old to tell"},
		{Node: "buoy", State: client.AppStarting},
		{Node: "dinghy", State: client.AppSilent, Reason: "gone"},
		{Node: "harbour", State: client.AppReady, Serves: 3},
	}
	if diff := cmp.Diff(p.NodeStates("shop", 3), want); diff != "" {
		t.Error(diff)
	}
}

// What a node serves, or may serve since it is too old to tell, no other node has to take.
func TestServing(t *testing.T) {
	shop := &catalog.Version{App: manifest.App{Name: "shop"}}
	for name, test := range map[string]struct {
		survey Survey
		want   bool
	}{
		"no node answers":     {Survey{Failed: map[outboard.NodeID]error{"dinghy": errors.New("gone")}}, false},
		"one makes it ready":  {Survey{Nodes: map[outboard.NodeID]map[string]Progress{"dinghy": {"bank": {Serving: 1}}}}, false},
		"one serves it":       {Survey{Nodes: map[outboard.NodeID]map[string]Progress{"dinghy": {"shop": {Serving: 1}}, "buoy": {}}}, true},
		"one can't tell, old": {Survey{Failed: map[outboard.NodeID]error{"dinghy": ErrOlder}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.survey.Serving([]*catalog.Version{shop}); got["shop"] != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
