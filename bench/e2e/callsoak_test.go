//go:build conformance

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

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
	before := map[*rig.Node]footprint{}
	for _, n := range nodes {
		before[n] = measure(t, n)
	}
	calls := callSoak(t, nodes, long)
	fmt.Printf("soak: %d calls and messages in %v\n", calls, long)
	for _, n := range nodes {
		settled(t, n, before[n])
		after := measure(t, n)
		fmt.Printf("%s began with %v\n%s ended with %v\n", n.Name, before[n], n.Name, after)
		if after.memory > before[n].memory+before[n].memory/10 {
			t.Errorf("%s: memory grew from %v to %v", n.Name, before[n].memory, after.memory)
		}
	}
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
		if _, err := nodes[i%len(nodes)].Output(t.Context(), "policy", "apply", file); err != nil {
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
