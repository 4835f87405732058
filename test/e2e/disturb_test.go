//go:build conformance

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/disktest"
)

// callSoak is a pool under load and what happens to it.
type callSoak struct {
	t          *testing.T
	dir        string // the disk of all nodes
	nodes      []*rig.Node
	namespaces bool
	servers    []*exec.Cmd // one on each node
	started    []string    // executions whose start was acknowledged
	happened   map[string]int
	applied    int // policies
}

// deploy deploys an app with a workflow that waits between its steps.
func (s *callSoak) deploy() {
	app := s.t.TempDir()
	for name, text := range map[string]string{
		"app.yaml": "app: patient\nworkflows: {steps: steps.yaml}\n",
		"steps.yaml": `document: {dsl: '1.0.0', namespace: test, name: steps, version: '1.0.0'}
do: [{a: {wait: {milliseconds: 300}}}, {b: {set: {n: 2}}}, {c: {wait: {milliseconds: 300}}}, {d: {set: {n: 3}}}]
`,
	} {
		if err := os.WriteFile(filepath.Join(app, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	if out, err := s.nodes[0].Output(s.t.Context(), "deploy", filepath.Join(app, "app.yaml")); err != nil {
		s.t.Fatalf("deploy: %v: %s", err, out)
	}
}

// run makes calls from all nodes while things happen, and returns how many went well. None may
// fail.
func (s *callSoak) run(long time.Duration) int64 {
	span := long.String()
	shapes := [][]string{
		{"-streams", "2", "-messages", "50"},
		{"-size", "300000", "-calls", "1", "-streams", "1", "-messages", "10"},
		{"-grpc", "", "-streams", "2", "-messages", "50"},
	}
	var working sync.WaitGroup
	results := make([]result, len(shapes)*len(s.nodes))
	for i, n := range s.nodes {
		for j, shape := range shapes {
			args := append([]string{"-for", span}, shape...)
			if shape[0] == "-grpc" {
				args[3] = grpcAddr(s.t, n)
			}
			working.Go(func() { results[len(shapes)*i+j] = load(s.t, n, args...) })
		}
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	s.disturb(done)
	good := int64(0)
	for i, r := range results {
		good += r.Good
		r.flawless(s.t, fmt.Sprintf("load %d", i))
	}
	return good
}

// disturb has one thing after the other happen until done is closed. Each ends before the next:
// several at once may rightly lose calls, such as the restart of the only server that is reached.
func (s *callSoak) disturb(done <-chan struct{}) {
	s.happened = map[string]int{}
	kinds := map[string]func(){"policies": s.swapPolicies, "restart": s.restartServer, "upgrade": s.upgrade, "full disk": s.fillDisk}
	if s.namespaces {
		kinds["cut"] = s.cut
	}
	names := slices.Sorted(maps.Keys(kinds))
	for round := 0; ; round++ {
		select {
		case <-done:
			return
		case <-time.After(500 * time.Millisecond):
		}
		s.start()
		name := names[round%len(names)]
		s.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), name)
		kinds[name]()
		s.happened[name]++
	}
}

func (s *callSoak) counts() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.happened)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, s.happened[name]))
	}
	return strings.Join(parts, ", ")
}

// start starts executions, and remembers those that the node acknowledged.
func (s *callSoak) start() {
	for _, n := range s.nodes {
		e, err := (&client.Client{Data: n.Data()}).RunWorkflow(s.t.Context(), client.RunRequest{App: "patient", Workflow: "steps"})
		if err != nil {
			s.t.Errorf("start an execution on %s: %v", n.Name, err)
			continue
		}
		s.started = append(s.started, e.ID)
	}
}

// awaitExecutions waits until all executions have completed.
func (s *callSoak) awaitExecutions() {
	for _, id := range s.started {
		eventually(s.t, "execution "+id+" completes", func() bool {
			e, err := (&client.Client{Data: s.nodes[0].Data()}).Execution(s.t.Context(), id, false)
			return err == nil && e.State == "completed"
		})
	}
}

// swapPolicies applies other policies five times, by the node that keeps the pool's state.
func (s *callSoak) swapPolicies() {
	file := filepath.Join(s.t.TempDir(), "policies.yaml")
	for range 5 {
		s.applied++
		text := fmt.Sprintf("policies:\n- name: rate\n  rate: {rate: %d/s, burst: 1000000}\n- name: limit\n  concurrency: {limit: %d}\n", 1_000_000+s.applied, 1000+s.applied%10)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
		if out, err := s.nodes[0].Output(s.t.Context(), "policies", "apply", file); err != nil {
			s.t.Errorf("policies: %v: %s", err, out)
		}
	}
}

// restartServer restarts the servers in turn, as a service manager does.
func (s *callSoak) restartServer() {
	for i, n := range s.nodes {
		if err := s.servers[i].Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Error(err)
		}
		if err := s.servers[i].Wait(); err != nil {
			s.t.Errorf("server on %s: %v", n.Name, err)
		}
		s.servers[i] = serving(s.t, n, len(s.servers), s.nodes...)
	}
}

func (s *callSoak) upgrade() {
	for _, n := range s.nodes {
		if out, err := n.Output(s.t.Context(), "upgrade"); err != nil {
			s.t.Errorf("upgrade of %s: %v %s", n.Name, err, out)
		}
	}
}

// cut cuts a node off for less time than makes it dead.
func (s *callSoak) cut() { cutFor(s.t, s.nodes[1], 1500*time.Millisecond) }

// fillDisk fills the disk of all nodes for a while. Calls pass all the same; what a node can't
// write it refuses, and it heals.
func (s *callSoak) fillDisk() {
	filler := disktest.Fill(s.t, s.dir)
	eventually(s.t, "the node says that its disk is full", func() bool {
		out, err := s.nodes[0].Output(s.t.Context(), "status")
		return err != nil && strings.Contains(out+err.Error(), "space")
	})
	if err := os.Remove(filler); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range s.nodes {
		eventually(s.t, n.Name+" is in good health", func() bool {
			_, err := n.Output(s.t.Context(), "status")
			return err == nil
		})
	}
}
