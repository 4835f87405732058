package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A node that was removed does not go on by itself, whatever else does not work.
func TestRemediesOfRemovedNodes(t *testing.T) {
	s := poolStatus{Node: client.Status{Node: "a", Problems: []client.HealthProblem{{Part: "membership", Text: "removed"}, {Part: "state", Text: "no write"}}}}
	for _, p := range s.findProblems() {
		if !strings.HasPrefix(p.Remedy, "stop the node, empty its data directory") {
			t.Errorf("%s: %s", p.Text, p.Remedy)
		}
	}
}

func TestStatusProblems(t *testing.T) {
	node := func(id outboard.NodeID, copies bool) outboard.Node { return outboard.Node{ID: id, Copy: copies} }
	tests := map[string]struct {
		status poolStatus
		want   []string // subject: text
	}{
		"an empty pool":    {poolStatus{}, nil},
		"one node":         {poolStatus{Nodes: []outboard.Node{node("a", true)}}, nil},
		"three nodes":      {poolStatus{Nodes: []outboard.Node{node("a", true), node("b", true), node("c", true)}}, nil},
		"an outer cluster": {poolStatus{Nodes: []outboard.Node{node("a", false), node("b", false), node("c", false)}}, nil},
		"a copy is missing": {
			poolStatus{Nodes: []outboard.Node{node("a", true), node("b", true), node("d", false)}},
			[]string{"pool: 2 of 3 nodes keep the pool's state, and 3 are wanted: it may not survive the loss of one"},
		},
		"a node that keeps the state is away": {
			poolStatus{
				Node:  client.Status{Keepers: []outboard.NodeID{"a", "b", "c"}},
				Nodes: []outboard.Node{node("a", true), node("b", true)},
			},
			[]string{"pool: 1 of the 3 nodes that keep the pool's state are away (c): the loss of one more would stop the pool"},
		},
		"two of them are away": {
			poolStatus{
				Node:  client.Status{Keepers: []outboard.NodeID{"a", "b", "c"}},
				Nodes: []outboard.Node{node("a", true), node("d", false)},
			},
			[]string{"pool: 2 of the 3 nodes that keep the pool's state are away (b, c): the pool accepts no changes"},
		},
		"they are away for so long that no node is listed": {
			poolStatus{Node: client.Status{Node: "a", Keepers: []outboard.NodeID{"a", "b", "c"}}},
			[]string{"pool: 2 of the 3 nodes that keep the pool's state are away (b, c): the pool accepts no changes"},
		},
		"health": {
			poolStatus{Node: client.Status{Node: "a", Problems: []client.HealthProblem{{Part: "disk", Text: "it is\nfull"}}}},
			[]string{"node a: disk: it is full"},
		},
		"clocks": {
			poolStatus{Node: client.Status{Node: "a", Clocks: []client.ClockOffset{
				{Node: "b", Ahead: client.Duration(time.Hour)},
				{Node: "c", Ahead: client.Duration(-2 * time.Minute)},
				{Node: "d"},
				{Node: "e"},
				{Node: "f"},
				{Node: "g"},
				{Node: "h"},
			}}},
			[]string{"clocks: the clocks of other nodes differ from this node's (b 1h0m0s ahead, c 2m0s behind, d 0s ahead, e 0s ahead, f 0s ahead, and 2 more): beyond five minutes nodes refuse each other's certificates"},
		},
		"apps": {
			poolStatus{Apps: []client.App{{Name: "shop", Version: 2, Nodes: []client.AppNode{
				{Node: "a", State: client.AppReady},
				{Node: "b", State: client.AppFailed, Reason: "no\nmodule"},
				{Node: "c", State: client.AppSilent},
				{Node: "d", State: client.AppSilent, Reason: "node d: no route"},
			}}}},
			[]string{
				"app shop: node b cannot start version 2: no module", "app shop: node c does not answer: no reason given",
				"app shop: node d does not answer: no route",
			},
		},
		"models": {
			poolStatus{Models: []client.Model{
				{Name: "mlp", State: "ready"},
				{Name: "digits", State: "unloaded"},
				{Name: "small", Version: 3, State: client.ModelFailed, Reason: "no\nvocabulary", Node: "b"},
			}},
			[]string{"model small: node b cannot load version 3: no vocabulary"},
		},
		"calls": {
			poolStatus{
				Services: []client.Service{{Name: "shop.Cart", Endpoints: 1}},
				Calls: []client.Calls{
					{Service: "shop.Cart", Method: "Add", Rate: 100, Errors: 4.9},
					{Service: "shop.Cart", Method: "Remove", Rate: 100, Errors: 5},
					{Service: "shop.Gone", Method: "A", Rate: 1},
					{Service: "shop.Gone", Method: "B", InFlight: 1},
					{Service: "shop.Past", Method: "A"},
					{Service: unknownServices, Method: unknownServices, Rate: 2, Errors: 2},
				},
			},
			[]string{
				"service shop.Cart: 5.0 of 100.0 calls/s of Remove fail",
				"calls: 2.0 calls/s name services that no program of the pool serves",
				"service shop.Gone: it is called, and no program of the pool serves it",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range test.status.findProblems() {
				got = append(got, p.Subject+": "+p.Text)
				if p.Remedy == "" {
					t.Errorf("%s has no remedy", p.Text)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A node that reaches no copy of the pool's state names the nodes that keep it.
func TestRemedyNamesKeepers(t *testing.T) {
	s := poolStatus{
		Node:  client.Status{Node: "b", Problems: []client.HealthProblem{{Part: "state", Text: "no write"}, {Part: "disk", Text: "full"}}},
		Nodes: []outboard.Node{{ID: "a", Copy: true}, {ID: "b"}},
	}
	for _, p := range s.findProblems() {
		if want := strings.HasPrefix(p.Text, "state"); strings.Contains(p.Remedy, "can be reached (a)") != want {
			t.Errorf("%s: %s", p.Text, p.Remedy)
		}
	}
}

// The remedy for a version that does not start is the one that a roll-back would restore, and no
// roll-back where there is none.
func TestRemediesOfVersions(t *testing.T) {
	failed := []client.AppNode{{Node: "b", State: client.AppFailed, Reason: "no module"}}
	s := poolStatus{
		Apps: []client.App{{Name: "first", Version: 1, Nodes: failed}, {Name: "fourth", Version: 4, Previous: 1, Nodes: failed}},
		Models: []client.Model{
			{Name: "m", Version: 1, State: client.ModelFailed}, {Name: "n", Version: 4, Previous: 1, State: client.ModelFailed},
		},
	}
	var got []string
	for _, p := range s.findProblems() {
		got = append(got, p.Remedy)
	}
	want := []string{
		"see `outboard logs first`; there is no earlier version: deploy one that starts, or remove the app with `outboard apps remove first`",
		"see `outboard logs fourth`; `outboard apps rollback fourth` deploys version 1 again",
		"see `outboard models show m --why`; there is no earlier version: push one that loads, or remove the model with `outboard models remove m`",
		"see `outboard models show n --why`; `outboard models rollback n` restores version 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Requests that wait for devices are shown, with what they wait for; a pool without any has no such
// table.
func TestWaitingRequestsAreShown(t *testing.T) {
	now := time.Now()
	selector, err := outboard.ParseSelector("type=gpu")
	if err != nil {
		t.Fatal(err)
	}
	s := poolStatus{Waiting: []client.QueuedRequest{
		{Holder: "dinghy", Program: "ffmpeg", Count: 2, Selector: selector, Memory: 1 << 30, Since: now.Add(-3 * time.Second)},
		{Holder: "buoy", Count: 1},
	}}
	var out strings.Builder
	if err := s.write(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `
Requests that wait for devices: 2
  HOLDER  DEVICES  MEMORY  SELECTOR  WAITS  PROGRAM
  dinghy  2        1GiB    type=gpu  3s     ffmpeg
  buoy    1        all     -         -      -
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	out.Reset()
	if err := (&poolStatus{}).write(&out, now); err != nil || strings.Contains(out.String(), "Requests that wait") {
		t.Errorf("%v: an empty pool has %s", err, out.String())
	}
}

// A large pool still fits on one screen, and names from other machines reach no terminal raw.
func TestStatusFitsOnAScreen(t *testing.T) {
	now := time.Now()
	s := poolStatus{Node: client.Status{Node: "a", Started: now}}
	for range 1000 {
		s.Nodes = append(s.Nodes, outboard.Node{ID: "n\x1b[2J", Started: now})
		s.Devices = append(s.Devices, client.Device{Device: outboard.Device{Name: "gpu\r\u202e\xff"}})
		s.Waiting = append(s.Waiting, client.QueuedRequest{Holder: "n\x1b[2J"})
		s.Apps = append(s.Apps, client.App{Name: "shop"})
		s.Models = append(s.Models, client.Model{Name: "mlp\x1b[2J"})
		s.Calls = append(s.Calls, client.Calls{Service: "s", Method: "m"})
	}
	var out strings.Builder
	if err := s.write(&out, now); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines > 45 {
		t.Errorf("a status has %d lines, want at most 45", lines)
	}
	if !strings.Contains(out.String(), "  and 997 more: `outboard nodes`") {
		t.Errorf("it does not say that there are more nodes:\n%s", out.String())
	}
	if strings.ContainsAny(out.String(), "\x1b\r\u202e") || !utf8.ValidString(out.String()) {
		t.Errorf("control characters are in %q", out.String())
	}
}

// A pool with few things of a kind shows more things of the others.
func TestStatusRows(t *testing.T) {
	rows := func(counts ...int) (all []statusSection) {
		for _, n := range counts {
			all = append(all, statusSection{rows: make([][]string, n)})
		}
		return all
	}
	for name, test := range map[string]struct {
		sections []statusSection
		want     int
	}{
		"nothing":       {rows(0, 0, 0, 0, 0), 6},
		"one is long":   {rows(2, 1000, 0, 1, 3), 6},
		"four are long": {rows(9, 9, 9, 0, 9), 6},
		"all are long":  {rows(9, 9, 9, 9, 9), 4},
		"one is short":  {rows(9, 9, 4, 9, 9), 5},
		"six are long":  {rows(9, 9, 9, 9, 9, 9), 3},
	} {
		if got := rowLimit(test.sections); got != test.want {
			t.Errorf("%s: got %d rows, want %d", name, got, test.want)
		}
	}
}

// A node whose clock is ahead has not been up for a negative time.
func TestAgeOfAClockAhead(t *testing.T) {
	if now := time.Now(); age(now, now.Add(time.Hour)) != "0s" {
		t.Error(age(now, now.Add(time.Hour)))
	}
}
