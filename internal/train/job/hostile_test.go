package job

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// The numbers of a request to start ranks overflow: the node would make room for 2^40 ranks, and end.
func TestHostileStarts(t *testing.T) {
	const most = math.MaxInt
	for name, s := range map[string]start{
		"first and count": {World: 1, First: most, Count: 1 << 40, PerDevice: 1 << 40, Claims: make([][]byte, 1)},
		"per device":      {World: 4, Count: 4, PerDevice: 1<<62 + 1, Claims: make([][]byte, 4)},
		"count":           {World: 1, Count: 2, PerDevice: 2, Claims: make([][]byte, 1)},
		"no claim":        {World: 1, Count: 1, PerDevice: 1},
	} {
		s.Nodes, s.Args = []outboard.NodeID{"dinghy"}, []string{"x"}
		text, err := json.Marshal(message{Start: &s})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeMessage(text); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node reports fewer than no sums: the metrics of the job's node, which only increase, would end it.
func TestHostileSums(t *testing.T) {
	for name, sums := range map[string]compress.Stats{"calls": {Calls: -1}, "bytes": {Calls: 1, Bytes: -1}, "sent": {Calls: 1, Sent: -1}} {
		text, err := json.Marshal(message{Exited: &exited{Rank: -1, Sums: sums}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeMessage(text); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node writes lines in the names of other nodes' ranks, from which the job's progress is read, and of
// the job itself, and reports a failure whose reason has no room in the job's record.
func TestHostileReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, node := openRun(t)
		a, out := newActive(t, Options{}), &writer{out: node}
		events := make(chan attemptEvent, 2)
		for _, rank := range []int{-1, 0, 1, 2} {
			if err := out.send(message{Line: &line{Rank: rank, Text: "step 7"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.send(message{Exited: &exited{Rank: 1, Reason: strings.Repeat("x", maxReason+1)}}); err != nil {
			t.Fatal(err)
		}
		if err := node.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		a.readReports(t.Context(), &nodeRun{node: "evil", stream: stream, first: 1, count: 1}, events)
		if e := <-events; e.exited == nil || len(e.exited.Reason) != maxReason {
			t.Errorf("got %+v, want a reason of %d bytes", e, maxReason)
		}
		if step := a.snapshot().Prog.Step; step != 0 {
			t.Errorf("the job's progress is step %d", step)
		}
		if size, _, _ := a.lines.state(); size == 0 || size > 200 {
			t.Errorf("the lines have %d bytes, want one line", size)
		}
	})
}

// A node, or a rank on it, explains its decisions without end. All nodes see each version of a job.
func TestFloodOfDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, writes := newActive(t, Options{}), 0
		a.write = func(context.Context, *client.Job) error {
			writes++
			return nil
		}
		for i := range 1000 {
			a.explainDecision(&nodeRun{node: "evil", count: 1}, &ranks.Decision{Subject: ranks.SubjectThreads, Text: strconv.Itoa(i)})
			synctest.Wait()
		}
		time.Sleep(2 * progressInterval)
		synctest.Wait()
		if why := a.snapshot().Why; len(why) != 1 || !strings.HasSuffix(why[0], " 999") || a.stored != a.version {
			t.Errorf("the record has %q, version %d of %d", why, a.stored, a.version)
		}
		if writes > 2 {
			t.Errorf("the record was written %d times", writes)
		}
	})
}

// A joined node starts ranks on a third node under the ID of another node's job. The ranks of that job
// do not exchange their data with them, and start there nevertheless.
func TestRanksOfAnotherManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHost(HostOptions{})
		own, other := purpose{Job: "job-abc", Attempt: 1, Manager: "east", From: 1}, purpose{Job: "job-abc", Attempt: 1, Manager: "evil", From: 1}
		nodes := &start{Nodes: []outboard.NodeID{"dinghy", "west"}}
		if err := h.register(other.key(), &run{start: nodes}); err != nil {
			t.Fatal(err)
		}
		if r, err := h.await(t.Context(), own, "west"); err == nil {
			t.Errorf("the ranks of node %s were taken for those of another node", r.key.manager)
		}
		want := &run{start: nodes}
		if err := h.register(own.key(), want); err != nil {
			t.Errorf("the ranks do not start: %v", err)
		}
		if r, err := h.await(t.Context(), own, "west"); err != nil || r != want {
			t.Errorf("got %p, %v, want %p", r, err, want)
		}
	})
}
