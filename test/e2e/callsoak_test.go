//go:build conformance

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/disktest"
)

// Calls, streams and executions for a while, under all that may happen to a pool without an
// error of anybody: policies change, servers restart one after the other, the processes that carry
// calls are upgraded, the network is cut for less than --dead-after, the disks fill up. No answer
// is wrong, nothing is lost, and the nodes' memory ends where it began.
func TestConformanceCallSoak(t *testing.T) {
	long := time.Minute
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	disktest.Run(t, 1<<30, func(t *testing.T, dir string) { soakCalls(t, dir, long) })
}

func soakCalls(t *testing.T, dir string, long time.Duration) {
	folder := filepath.Join(dir, "nodes")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r := own(t, rig.Options{Dir: folder, Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	s := &callSoak{t: t, dir: dir, nodes: []*rig.Node{r.Node("harbour"), r.Node("dinghy")}, namespaces: r.Where() == "in network namespaces of their own"}
	s.deploy()
	s.servers = []*exec.Cmd{serving(t, s.nodes[0], 1, s.nodes...), serving(t, s.nodes[1], 2, s.nodes...)}
	s.run(long / 5) // buffers fill
	before, carried := map[*rig.Node]footprint{}, map[*rig.Node]footprint{}
	for _, n := range s.nodes {
		before[n], carried[n] = measure(t, n), measureCalls(t, n)
	}
	calls := s.run(long)
	fmt.Printf("soak: %d calls and messages, %d executions in %v; %s\n", calls, len(s.started), long, s.counts())
	s.awaitExecutions()
	for _, n := range s.nodes {
		waitForFootprint(t, n, before[n])
		after := measure(t, n)
		fmt.Printf("%s began with %v\n%s ended with %v\n", n.Name, before[n], n.Name, after)
		if after.memory > before[n].memory+before[n].memory/10+moreMemory {
			t.Errorf("%s: memory grew from %v to %v", n.Name, before[n].memory, after.memory)
		}
		waitForCallsFootprint(t, n, carried[n])
	}
}

// measureCalls is the footprint of the process that carries a node's calls, as the
// node tells it.
func measureCalls(t testing.TB, n *rig.Node) footprint {
	t.Helper()
	f := footprint{}
	for line := range strings.Lines(getPage(t, n, "/metrics")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case `process_open_fds{process="calls"}`:
			f.descriptors = int(value)
		case `go_goroutines{process="calls"}`:
			f.goroutines = int(value)
		case `process_resident_memory_bytes{process="calls"}`:
			f.memory = outboard.Bytes(value)
		case `go_memstats_heap_alloc_bytes{process="calls"}`:
			f.heap = outboard.Bytes(value)
		}
	}
	if f.goroutines == 0 || f.memory == 0 {
		t.Fatal("the node's metrics lack those of the process that carries its calls")
	}
	return f
}

// waitForCallsFootprint waits until that process has about the footprint that it had. The test
// cannot make it collect its garbage: it does so within two minutes.
func waitForCallsFootprint(t testing.TB, n *rig.Node, before footprint) {
	t.Helper()
	var now footprint
	defer func() {
		fmt.Printf("%s's calls began with %v\n%s's calls ended with %v\n", n.Name, before, n.Name, now)
	}()
	eventually(t, n.Name+": the process that carries calls is as before", func() bool {
		now = measureCalls(t, n)
		return now.descriptors <= before.descriptors+moreDescriptors && now.goroutines <= before.goroutines+moreGoroutines &&
			now.memory <= before.memory+before.memory/10+moreMemory
	})
}
