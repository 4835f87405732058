package cli

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// The nodes' states are shown on a terminal once the wait is long, and whenever they change.
func TestNodeWaitShowsProgress(t *testing.T) {
	nodes := func(states ...string) (all []client.AppNode) {
		for i, state := range states {
			all = append(all, client.AppNode{Node: outboard.NodeID([]string{"buoy", "dinghy", "harbour"}[i]), State: state})
		}
		return all
	}
	for name, test := range map[string]struct {
		terminal bool
		want     string
	}{
		"terminal":    {true, "ready on 1 of 3 nodes, dinghy compiles; harbour does not answer ...\nready on 2 of 3 nodes, dinghy compiles ...\n"},
		"no terminal": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				w := nodeWait{env: &Env{Stderr: &out, Terminal: test.terminal}, began: time.Now()}
				w.showProgress(nodes(client.AppStarting, client.AppStarting, client.AppStarting)) // nobody is impatient yet
				time.Sleep(silenceLimit)
				for range 2 {
					w.showProgress(nodes(client.AppReady, client.AppStarting, client.AppSilent))
				}
				w.showProgress(nodes(client.AppReady, client.AppStarting, client.AppReady))
				if got := out.String(); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// Who interrupts the wait is told that the app is applied.
func TestNodeWaitInterrupted(t *testing.T) {
	var out bytes.Buffer
	w := nodeWait{env: &Env{Stderr: &out}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	made := &client.Deployed{App: "shop", Version: 3, Nodes: []client.AppNode{{Node: "buoy", State: client.AppStarting}, {Node: "harbour", State: client.AppReady}}}
	if err := w.timeOut(ctx, made, time.Minute); exitStatus(ctx, err) != statusInterrupted {
		t.Errorf("got %v", err)
	}
	if got, want := out.String(), "app shop, version 3, is applied; ready on 1 of 2 nodes, buoy compiles\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Of a pool only nodes that may become ready are waited for.
func TestWaitedFor(t *testing.T) {
	for state, want := range map[string]bool{
		client.AppReady: false, client.AppStarting: true, client.AppFailed: false, client.AppSilent: true, client.AppUnknown: false,
	} {
		if got := pending(client.AppNode{State: state}); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
}
