package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
  rest: {module: durable.wasm, env: {DOES: rest}, limits: {deadline: 10m}}
buckets: [notes]
workflows: {steps: steps.yaml, long: long.yaml}
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

const longWorkflow = `document: {dsl: '1.0.0', namespace: e2e, name: long, version: '1.0.0'}
do: [{rest: {call: rest}}]
`

// guests are the modules of functions that tests have built, by package.
var guests struct {
	sync.Mutex
	modules map[string][]byte
}

// goGuest writes the module of one of this package's functions.
func goGuest(t testing.TB, name, to string) {
	t.Helper()
	goModule(t, "./testdata/"+name, to)
}

// goModule writes the module of a package, which it builds once.
func goModule(t testing.TB, source, to string) {
	t.Helper()
	guests.Lock()
	defer guests.Unlock()
	if guests.modules[source] == nil {
		module := filepath.Join(scratch(), filepath.Base(source)+".wasm")
		build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", module, source)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		code, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		if guests.modules == nil {
			guests.modules = map[string][]byte{}
		}
		guests.modules[source] = code
	}
	write(t, to, guests.modules[source])
}

// appPool is a pool of three nodes with the app on it.
func appPool(t testing.TB) (*rig.Rig, []*rig.Node) {
	t.Helper()
	specs := []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}, {Name: "buoy", Devices: "none"}}
	r := own(t, rig.Options{Nodes: specs})
	dir := t.TempDir()
	goGuest(t, "durable", filepath.Join(dir, "durable.wasm"))
	for name, text := range map[string]string{"app.yaml": durableManifest, "steps.yaml": durableWorkflow, "long.yaml": longWorkflow} {
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
	eventually(t, n.Name+" serves the app", func() bool {
		apps, err := c.Apps(t.Context())
		return err == nil && len(apps) == 1 && apps[0].State == "ready"
	})
}

// An app that is deployed on one node is served by all.
func TestAppOnAllNodes(t *testing.T) {
	beside(t)
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
	logsOfAll(t, nodes)
	cancelElsewhere(t, nodes)
	outliveKills(t, nodes, 30, 2)
}

// logsOfAll wants each node to tell what happened on all of them.
func logsOfAll(t testing.TB, nodes []*rig.Node) {
	t.Helper()
	for _, n := range nodes {
		if _, err := n.Output(t.Context(), "invoke", "durable/count"); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes { // a node that does not answer in time is left out
		eventually(t, n.Name+" has the log of all nodes", func() bool {
			text, err := n.Output(t.Context(), "logs", "durable/count")
			return err == nil && !slices.ContainsFunc(nodes, func(other *rig.Node) bool { return !strings.Contains(text, "  "+other.Name+"  count  ") })
		})
	}
	follow := nodes[0].Command(t.Context(), "logs", "durable/count", "-f", "-n", "0")
	lines, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	go func() {
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			if strings.Contains(scanner.Text(), nodes[1].Name) {
				heard <- scanner.Text()
				return
			}
		}
		heard <- "nothing"
	}()
	eventually(t, "a follower of the log gets records of another node", func() bool {
		_, err := nodes[1].Output(t.Context(), "invoke", "durable/count")
		return err == nil && len(heard) > 0
	})
	_ = follow.Process.Kill()
	_ = follow.Wait() // killed
}

// cancelElsewhere wants an execution that is cancelled at one node to stop its step on
// another one at once.
func cancelElsewhere(t testing.TB, nodes []*rig.Node) {
	t.Helper()
	if _, err := nodes[0].Output(t.Context(), "executions", "start", "durable/long", "--id", "long"); err != nil {
		t.Fatal(err)
	}
	resting := func() (n int) { // as any node tells it
		functions, err := (&client.Client{Data: nodes[2].Data()}).Functions(t.Context(), "durable")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range functions {
			if len(f.Missing) > 0 {
				return -1
			}
			if f.Name == "rest" {
				n = f.Running
			}
		}
		return n
	}
	eventually(t, "the step runs", func() bool { return resting() == 1 })
	for _, n := range nodes {
		eventually(t, n.Name+" tells where the step runs", func() bool {
			e, err := (&client.Client{Data: n.Data()}).Execution(t.Context(), "durable/long", false)
			return err == nil && len(e.Steps) == 1 && e.Steps[0].State == client.StateRunning && e.Steps[0].Node != ""
		})
	}
	if out, err := nodes[1].Output(t.Context(), "executions", "cancel", "durable/long"); err != nil {
		t.Fatalf("cancel: %v: %s", err, out)
	}
	eventually(t, "the step is stopped", func() bool { return resting() == 0 })
}

// outliveKills runs executions on all nodes and kills these at random meanwhile. All
// executions end well, and nothing that was recorded is done again.
//
// A share of the executions begins before each kill, which comes when half of that
// share has ended: the others are under way.
func outliveKills(t testing.TB, nodes []*rig.Node, executions, kills int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	w := &wave{nodes: nodes, names: make(chan string, executions)}
	var running sync.WaitGroup
	for i := range 16 * len(nodes) {
		running.Go(func() { w.runAll(ctx, i) })
	}
	random := rand.New(rand.NewPCG(uint64(executions), uint64(kills)))
	began := time.Now()
	told := func(what string) { t.Logf("%6.1fs %4d ended: %s", time.Since(began).Seconds(), w.count(), what) }
	for i := range kills {
		from, to := executions*i/(kills+1), executions*(i+1)/(kills+1)
		w.begin(from, to)
		eventually(t, "half of what began ends", func() bool { return w.count() >= (from+to)/2 })
		n := nodes[random.IntN(len(nodes))]
		told(fmt.Sprintf("kill %d: %s", i+1, n.Name))
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		pause(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
		if err := n.Up(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.begin(executions*kills/(kills+1), executions)
	close(w.names)
	running.Wait()
	if told("that is all"); w.count() != executions {
		t.Fatalf("only %d of %d executions ended", w.count(), executions)
	}
	endedWell(ctx, t, nodes[0], executions)
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

// A wave is executions on all nodes at once.
type wave struct {
	nodes []*rig.Node
	names chan string
	ended atomic.Int64
}

func (w *wave) count() int { return int(w.ended.Load()) }

// begin lets executions begin.
func (w *wave) begin(from, to int) {
	for i := from; i < to; i++ {
		w.names <- fmt.Sprintf("e%d", i)
	}
}

// runAll runs executions, one after the other, at a node, or at the next one while
// that is away. The names make it safe to ask again.
func (w *wave) runAll(ctx context.Context, first int) {
	for name := range w.names {
		for at := first; ctx.Err() == nil; at++ {
			c := &client.Client{Data: w.nodes[at%len(w.nodes)].Data()}
			limit, cancel := context.WithTimeout(ctx, 15*time.Second)
			e, err := c.RunWorkflow(limit, client.RunRequest{App: "durable", Workflow: "steps", ID: name, Wait: true})
			cancel()
			if err == nil && !e.Ended.IsZero() {
				w.ended.Add(1)
				break
			}
			pause(ctx, 50*time.Millisecond)
		}
	}
}

// endedWell looks at what executions have done.
func endedWell(ctx context.Context, t testing.TB, n *rig.Node, executions int) {
	t.Helper()
	var list []client.Execution
	named := 0
	eventually(t, "the executions are listed as ended", func() bool { // the node may have been killed, and lag behind
		var err error
		list, err = (&client.Client{Data: n.Data()}).Executions(ctx, client.ExecutionsRequest{App: "durable", Workflow: "steps"})
		named = 0
		for _, e := range list {
			if strings.HasPrefix(e.ID, "durable/e") && !e.Ended.IsZero() {
				named++
			}
		}
		return err == nil && named >= executions
	})
	moves := 0
	for _, e := range list {
		moves += len(e.Nodes) - 1
		if e.State != client.StateCompleted {
			t.Errorf("%s: %s: %+v: on %+v until %s", e.ID, e.State, e.Fault, e.Nodes, e.Ended)
		}
	}
	t.Logf("%d executions, which were taken over %d times", len(list), moves)
	if named != executions {
		t.Errorf("%d executions are listed, want %d", named, executions)
	}
	if counted, want := outputOf(ctx, t, n, "invoke", "durable/count"), strconv.Itoa(len(list)); counted != want {
		t.Errorf("%s executions counted their end, want %s", counted, want)
	}
}

// outputOf is what a command says, once the node is there.
func outputOf(ctx context.Context, t testing.TB, n *rig.Node, args ...string) (out string) {
	t.Helper()
	eventually(t, strings.Join(args, " "), func() bool {
		var err error
		out, err = n.Output(ctx, args...)
		return err == nil
	})
	return out
}
