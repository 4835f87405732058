package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

const durableManifest = `app: durable
functions:
  draw: {module: durable.wasm, env: {DOES: draw}, limits: {concurrency: 64, queue: 4096}}
  see: {module: durable.wasm, env: {DOES: see}, imports: [{bucket: notes}], limits: {concurrency: 64, queue: 4096}}
  end: {module: durable.wasm, env: {DOES: end}, imports: [{bucket: notes}], limits: {concurrency: 64, queue: 4096}}
  count: {module: durable.wasm, env: {DOES: count}, imports: [{bucket: notes}]}
buckets: [notes]
workflows: {steps: steps.yaml}
routes: [{path: /steps, methods: [POST], workflow: steps, wait: true}]
`

const durableWorkflow = `document: {dsl: '1.0.0', namespace: e2e, name: steps, version: '1.0.0'}
do:
  - draw: {call: draw}
  - both:
      fork:
        branches:
          - one: {call: see}
          - two: {call: see}
  - wait: {wait: {milliseconds: 20}}
  - again: {call: see, with: {body: '${ .[0] }'}}
  - finish: {call: end}
`

// goGuest builds one of this package's functions.
func goGuest(t testing.TB, name, to string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", to, "./testdata/"+name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// appPool is a pool of three nodes with the app on it.
func appPool(t testing.TB) (*rig.Rig, []*rig.Node) {
	t.Helper()
	specs := []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}, {Name: "buoy", Devices: "none"}}
	r := own(t, rig.Options{Nodes: specs})
	dir := t.TempDir()
	goGuest(t, "durable", filepath.Join(dir, "durable.wasm"))
	for name, text := range map[string]string{"app.yaml": durableManifest, "steps.yaml": durableWorkflow} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nodes := []*rig.Node{r.Node("harbour"), r.Node("dinghy"), r.Node("buoy")}
	if out, err := nodes[0].Output(t.Context(), "deploy", filepath.Join(dir, "app.yaml")); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	for _, n := range nodes {
		served(t, n)
	}
	return r, nodes
}

func served(t testing.TB, n *rig.Node) {
	t.Helper()
	c := &client.Client{Data: n.Data()}
	eventually(t, time.Minute, n.Name+" serves the app", func() bool {
		apps, err := c.Apps(t.Context())
		return err == nil && len(apps) == 1 && apps[0].State == "ready"
	})
}

// An app that is deployed on one node is served by all.
func TestAppOnAllNodes(t *testing.T) {
	_, nodes := appPool(t)
	for _, n := range nodes {
		status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out, err := n.Exec(t.Context(), "curl", "-sS", "-d", "{}", "http://"+status.HTTP+"/durable/steps").CombinedOutput()
		if _, notNumber := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64); err != nil || notNumber != nil {
			t.Errorf("%s: %v: %s", n.Name, err, out)
		}
	}
	outliveKills(t, nodes, 30, 2)
}

// outliveKills starts executions on all nodes and kills these, one after another, as
// they run. All executions end well, and nothing that was recorded is done again.
func outliveKills(t testing.TB, nodes []*rig.Node, executions, kills int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	names := make(chan string)
	go func() {
		defer close(names)
		for i := range executions {
			names <- fmt.Sprintf("e%d", i)
		}
	}()
	started := make(chan int, len(nodes))
	for i := range nodes {
		go func() { started <- startAll(ctx, nodes, i, names) }()
	}
	for i := range kills {
		n := nodes[(i+1)%len(nodes)]
		pause(ctx, 2*time.Second)
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		pause(ctx, time.Second)
		if err := n.Up(ctx); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for range nodes {
		total += <-started
	}
	if total != executions {
		t.Fatalf("only %d of %d executions could be started", total, executions)
	}
	allEnded(ctx, t, nodes[0], executions)
}

// pause waits while things happen elsewhere.
func pause(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// startAll starts executions at a node, or at the next one while that is away. The
// names make it safe to ask again.
func startAll(ctx context.Context, nodes []*rig.Node, first int, names <-chan string) int {
	done := 0
	for name := range names {
		for at := first; ctx.Err() == nil; at++ {
			c := &client.Client{Data: nodes[at%len(nodes)].Data()}
			limit, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := c.RunWorkflow(limit, client.RunRequest{App: "durable", Workflow: "steps", ID: name})
			cancel()
			if err == nil {
				done++
				break
			}
			pause(ctx, 50*time.Millisecond)
		}
	}
	return done
}

// allEnded waits until all executions have ended, and looks at what they did.
func allEnded(ctx context.Context, t testing.TB, n *rig.Node, executions int) {
	t.Helper()
	c := &client.Client{Data: n.Data()}
	var list []client.Execution
	eventually(t, 5*time.Minute, "all executions end", func() bool {
		var err error
		list, err = c.Executions(ctx, client.ExecutionsRequest{App: "durable"})
		ended := 0
		for _, e := range list {
			if named(e.ID) && !e.Ended.IsZero() {
				ended++
			}
		}
		return err == nil && ended == executions
	})
	for _, e := range list {
		if named(e.ID) && e.State != client.StateCompleted {
			t.Errorf("%s: %s: %+v", e.ID, e.State, e.Fault)
		}
	}
	out, err := n.Output(ctx, "invoke", "durable/count")
	if want := strconv.Itoa(len(list)); err != nil || out != want {
		t.Errorf("%s executions counted their end, want %s: %v", out, want, err)
	}
}

// named are the executions that this test has started by their names.
func named(id string) bool { return strings.HasPrefix(id, "durable/e") }
