//go:build conformance

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
)

// Calls for a while, of all kinds and under policies that change, while servers
// come and go: no answer is wrong, and the nodes' memory ends where it began.
func TestConformanceCallSoak(t *testing.T) {
	long := time.Minute
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	r := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}, {Name: "dinghy", Devices: "none"}}})
	nodes := []*rig.Node{r.Node("harbour"), r.Node("dinghy")}
	serving(t, nodes[0], 1, nodes...)
	callSoak(t, nodes, long/5) // buffers fill
	before, carried := map[*rig.Node]footprint{}, map[*rig.Node]footprint{}
	for _, n := range nodes {
		before[n], carried[n] = measure(t, n), measureCalls(t, n)
	}
	calls := callSoak(t, nodes, long)
	fmt.Printf("soak: %d calls and messages in %v\n", calls, long)
	for _, n := range nodes {
		waitForFootprint(t, n, before[n])
		after := measure(t, n)
		fmt.Printf("%s began with %v\n%s ended with %v\n", n.Name, before[n], n.Name, after)
		if after.memory > before[n].memory+before[n].memory/10 {
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

// callSoak makes calls from all nodes, and returns how many went well.
func callSoak(t *testing.T, nodes []*rig.Node, long time.Duration) int64 {
	var working sync.WaitGroup
	results := make([]result, 3*len(nodes))
	for i, n := range nodes {
		span := long.String()
		working.Go(func() { results[3*i] = load(t, n, "-for", span) })
		working.Go(func() { results[3*i+1] = load(t, n, "-for", span, "-size", "300000", "-calls", "1", "-streams", "1") })
		working.Go(func() { results[3*i+2] = load(t, n, "-for", span, "-grpc", grpcAddr(t, n)) })
	}
	done := make(chan struct{})
	go func() { working.Wait(); close(done) }()
	stir(t, nodes, done)
	good := int64(0)
	for i, r := range results {
		good += r.Good
		delete(r.Failed, "Unavailable") // the servers that come go as well
		if r.Good == 0 || r.Wrong != 0 || len(r.Failed) != 0 {
			t.Errorf("load %d: %+v", i, r)
		}
	}
	return good
}

// stir changes policies and starts and kills servers until done is closed.
func stir(t *testing.T, nodes []*rig.Node, done <-chan struct{}) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
		text := "policies:\n- name: rate\n  rate: {rate: " + strconv.Itoa(1000000+i) + "/s, burst: 1000000}\n- name: limit\n  concurrency: {limit: " + strconv.Itoa(1000+i%10) + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
		if _, err := nodes[i%len(nodes)].Output(t.Context(), "policies", "apply", file); err != nil {
			t.Error(err)
		}
		if i%5 == 4 {
			extra := serving(t, nodes[i%len(nodes)], 2, nodes...)
			_ = extra.Process.Kill()
			for _, n := range nodes {
				endpoints(t, n, 1)
			}
		}
	}
}
