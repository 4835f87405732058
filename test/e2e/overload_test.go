package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

const gateManifest = `app: gate
functions:
  work: {module: gate.wasm, env: {DOES: work}, imports: [{bucket: notes}], limits: {concurrency: 2, queue: 4, deadline: 10m}}
  open: {module: gate.wasm, env: {DOES: open}, imports: [{bucket: notes}]}
  count: {module: gate.wasm, env: {DOES: count}, imports: [{bucket: notes}]}
  nap: {module: gate.wasm, env: {DOES: nap}, limits: {concurrency: 1, queue: 1, deadline: 10m}}
buckets: [notes]
workflows: {wait: wait.yaml, work: work.yaml}
routes:
  - {path: /workflows/wait, methods: [POST], workflow: wait}
  - {path: /workflows/work, methods: [POST], workflow: work}
  - {path: /work, methods: [POST], function: work}
  - {path: /open, methods: [POST], function: open}
  - {path: /nap, methods: [POST], function: nap}
`

// gateWorkflows have one step each.
var gateWorkflows = map[string]string{"wait": "{wait: {hours: 1}}", "work": "{call: work, with: {body: some}}"}

// gateTakes is how many calls of work there may be at a time.
const gateTakes = 2 + 4

// gateRuns is how many executions there may be at a time: more than run at once.
const gateRuns = 1200

// A gated is a node with the app, and its address.
type gated struct {
	*testing.T
	node   *rig.Node
	url    string
	client *http.Client
}

func openGated(t *testing.T) *gated {
	t.Helper()
	r := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{{Name: "harbour", Devices: "none", Args: []string{"--http", "127.0.0.1:0", "--max-executions", strconv.Itoa(gateRuns)}}}})
	dir := t.TempDir()
	goGuest(t, "gate", filepath.Join(dir, "gate.wasm"))
	write(t, filepath.Join(dir, "app.yaml"), []byte(gateManifest))
	for name, step := range gateWorkflows {
		text := "document: {dsl: '1.0.0', namespace: e2e, name: " + name + ", version: '1.0.0'}\ndo: [{step: " + step + "}]\n"
		write(t, filepath.Join(dir, name+".yaml"), []byte(text))
	}
	n := r.Node("harbour")
	if out, err := n.Output(t.Context(), "deploy", dir); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	g := &gated{T: t, node: n, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	t.Cleanup(g.client.CloseIdleConnections)
	g.find()
	return g
}

// find learns where the node takes requests.
func (g *gated) find() {
	g.Helper()
	served(g, g.node)
	status, err := (&client.Client{Data: g.node.Data()}).Status(g.Context())
	if err != nil {
		g.Fatal(err)
	}
	g.url = "http://" + status.HTTP + "/gate/"
}

// post makes a call, in chunks where length is false. A refusal has to be as it should.
func (g *gated) post(route, body string, length bool) (status int, err error) {
	var in io.Reader = strings.NewReader(body)
	if !length {
		in = struct{ io.Reader }{in}
	}
	request, err := http.NewRequestWithContext(g.Context(), http.MethodPost, g.url+route, in)
	if err != nil {
		return 0, err
	}
	p, err := g.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer p.Body.Close()
	answer, err := io.ReadAll(p.Body)
	switch {
	case err != nil:
		return 0, err
	case p.StatusCode == http.StatusTooManyRequests:
		return p.StatusCode, isRefusal(p, answer)
	case p.StatusCode == http.StatusAccepted, p.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(route, "workflows/"):
		return p.StatusCode, nil
	case p.StatusCode != http.StatusOK || string(answer) != body:
		return 0, fmt.Errorf("status %d: %q", p.StatusCode, answer)
	}
	return p.StatusCode, nil
}

// isRefusal wants an answer that says what is wrong and when to come again.
func isRefusal(p *http.Response, answer []byte) error {
	var problem struct {
		Title, Detail, Kind string
		Status              int
	}
	after, err := strconv.Atoi(p.Header.Get("Retry-After"))
	err = errors.Join(err, json.Unmarshal(answer, &problem))
	if err != nil || after < 1 || p.Header.Get("Content-Type") != "application/problem+json" ||
		problem.Title != "Too Many Requests" || problem.Status != p.StatusCode || problem.Kind != "busy" || problem.Detail == "" {
		return fmt.Errorf("%w: %v: %s", err, p.Header, answer)
	}
	return nil
}

// ends is how many calls of work came to their end.
func (g *gated) ends() int {
	g.Helper()
	text, err := g.node.Output(g.Context(), "invoke", "gate/count")
	n, notNumber := strconv.Atoi(strings.TrimSpace(text))
	if err := errors.Join(err, notNumber); err != nil {
		g.Fatal(err)
	}
	return n
}

// All calls beyond a function's limits are answered: accepted ones with the function's result,
// the others at once with 429. Afterwards it serves as before.
func TestOverload(t *testing.T) {
	beside(t)
	g := openGated(t)
	const clients = 48
	var accepted, refused atomic.Int64
	all := func(calls int) *sync.WaitGroup {
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() {
				for j := range calls {
					switch status, err := g.post("work", fmt.Sprint("work ", i, " ", j), i%2 == 0); {
					case err != nil:
						t.Error(err)
					case status == http.StatusOK:
						accepted.Add(1)
					default:
						refused.Add(1)
					}
				}
			})
		}
		t.Cleanup(running.Wait)
		return &running
	}
	once := all(1)
	eventually(t, "clients above the limit are refused", func() bool { return refused.Load() >= clients-gateTakes })
	if n := accepted.Load(); n != 0 {
		t.Errorf("%d calls have ended before they could", n)
	}
	if _, err := g.post("open", "yes", true); err != nil {
		t.Fatal(err)
	}
	once.Wait()
	if a, r := accepted.Load(), refused.Load(); a != gateTakes || r != clients-gateTakes {
		t.Errorf("%d of %d calls were accepted and %d refused, want %d accepted", a, clients, r, gateTakes)
	}
	all(40).Wait()
	t.Logf("%d calls were accepted, %d refused", accepted.Load(), refused.Load())
	if ends := g.ends(); ends != int(accepted.Load()) {
		t.Errorf("%d calls were answered well, and %d came to their end", accepted.Load(), ends)
	}
	for i := range 20 {
		if status, err := g.post("work", fmt.Sprint("after ", i), i%2 == 0); err != nil || status != http.StatusOK {
			t.Errorf("afterwards: status %d, %v", status, err)
		}
	}
}

// starts counts the answers to the starts of a workflow.
type starts struct{ accepted, unknown, refused atomic.Int64 }

// start starts an execution and counts the answer. A pool's state that is slow to acknowledge a start,
// as on a busy machine, makes it unknown: it may have been recorded.
func (g *gated) start(workflow string, counts *starts, length bool) (status int) {
	status, err := g.post("workflows/"+workflow, "{}", length)
	switch {
	case err != nil:
		g.Errorf("%s: %v", workflow, err)
	case status == http.StatusAccepted:
		counts.accepted.Add(1)
	case status == http.StatusServiceUnavailable:
		counts.unknown.Add(1)
	default:
		counts.refused.Add(1)
	}
	return status
}

// most is how many executions have been started if all unknown ones were recorded.
func (s *starts) most() int { return int(s.accepted.Load() + s.unknown.Load()) }

// are reports whether n can be the number of the executions that have been started.
func (s *starts) are(n int) bool { return int(s.accepted.Load()) <= n && n <= s.most() }

// Of more executions than a node keeps all are answered: those that there is room for with 202,
// and they go on; the others with 429, until some have ended.
func TestTooManyExecutions(t *testing.T) {
	beside(t)
	g := openGated(t)
	const working = 3
	var work, wait starts
	for work.accepted.Load() < working && !t.Failed() {
		g.start("work", &work, true)
	}
	var filling sync.WaitGroup
	for i := range 48 {
		filling.Go(func() {
			for wait.refused.Load() < 100 && !t.Failed() {
				g.start("wait", &wait, i%2 == 0)
			}
		})
	}
	filling.Wait()
	full := func(workflow string, counts *starts) {
		eventually(t, "no start is accepted", func() bool {
			return t.Failed() || g.start(workflow, counts, true) == http.StatusTooManyRequests
		})
	}
	full("work", &work)
	if n := int(wait.accepted.Load() + work.accepted.Load()); n > gateRuns {
		t.Errorf("%d executions were accepted, want %d at most", n, gateRuns)
	}
	t.Logf("of %d starts %d were not acknowledged", wait.most()+work.most(), wait.unknown.Load()+work.unknown.Load())
	g.executions(t, "wait", func(w client.Workflow) bool { return wait.are(w.Running) })
	g.executions(t, "work", func(w client.Workflow) bool { return work.are(w.Running) })
	if _, err := g.post("open", "yes", true); err != nil {
		t.Fatal(err)
	}
	g.executions(t, "work", func(w client.Workflow) bool { return work.are(w.Completed) && w.Running == 0 })
	if ends := g.ends(); !work.are(ends) {
		t.Errorf("%d steps came to their end, want %d", ends, work.accepted.Load())
	}
	room := wait.most() + working
	eventually(t, "there is room again", func() bool {
		g.start("wait", &wait, true)
		return t.Failed() || wait.most() >= room
	})
	full("wait", &wait)
}

// executions waits until a workflow has executions as they should be.
func (g *gated) executions(t *testing.T, workflow string, ok func(client.Workflow) bool) {
	t.Helper()
	c := &client.Client{Data: g.node.Data()}
	eventually(t, "the executions of "+workflow+" are right", func() bool {
		all, err := c.Workflows(t.Context(), "gate")
		for _, w := range all {
			if err == nil && w.Name == workflow {
				return ok(w)
			}
		}
		return false
	})
}

// A node that is told to stop drains: it accepts no more calls and completes those in progress.
func TestStopWithCalls(t *testing.T) {
	beside(t)
	g := openGated(t)
	for name, stop := range map[string]func() error{
		"down":           func() error { return g.node.Command(t.Context(), "down").Run() },
		"SIGTERM":        func() error { return syscall.Kill(g.node.PID(), syscall.SIGTERM) },
		"SIGTERM to all": g.node.Stop,
	} {
		t.Run(name, func(t *testing.T) {
			// A call may be over before the node has heard: then it is tried with a longer one.
			for long := time.Second; !g.outlasts(t, stop, long) && !t.Failed(); long *= 2 {
				t.Logf("the calls of %v were over before the node took no more", long)
			}
		})
	}
}

// outlasts makes one call that runs and one that waits, has the node stop, and says whether it
// took no more calls while the two went on. Then it is started again.
func (g *gated) outlasts(t *testing.T, stop func() error, long time.Duration) bool {
	t.Helper()
	answers := make(chan error, 2)
	for i := range cap(answers) {
		go func() {
			status, err := g.post("nap", long.String(), i == 0)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("status %d", status)
			}
			answers <- err
		}()
	}
	c := &client.Client{Data: g.node.Data()}
	eventually(t, "one call runs and one waits", func() bool {
		all, err := c.Functions(t.Context(), "gate")
		for _, f := range all {
			if err == nil && f.Name == "nap" {
				return f.Running == 1 && f.Waiting == 1
			}
		}
		return false
	})
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	eventually(t, "the node takes no more", func() bool {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(g.url, "http://"), "/gate/"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	showed := len(answers) == 0
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Errorf("a call that the node had accepted: %v", err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := errors.Join(g.node.Stop(), g.node.Up(t.Context())); err != nil {
		t.Fatal(err)
	}
	g.find()
	return showed
}
