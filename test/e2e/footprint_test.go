package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A footprint is what a node takes of its machine.
type footprint struct {
	processes, descriptors, goroutines int
	memory, heap                       outboard.Bytes
}

func (f footprint) String() string {
	return fmt.Sprintf("%d processes below it, %d descriptors, %d goroutines, %.1f MiB resident, %.1f MiB of objects",
		f.processes, f.descriptors, f.goroutines, float64(f.memory)/(1<<20), float64(f.heap)/(1<<20))
}

// measure asks a node for its footprint, after it has collected its garbage.
func measure(t testing.TB, n *rig.Node) footprint {
	t.Helper()
	for range 2 { // the second one frees what finalizers gave up
		getPage(t, n, "/debug/pprof/heap?gc=1")
	}
	f := footprint{processes: len(descendants(n.PID()))}
	lines := bufio.NewScanner(strings.NewReader(getPage(t, n, "/metrics")))
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "process_open_fds":
			f.descriptors = int(value)
		case "go_goroutines":
			f.goroutines = int(value)
		case "process_resident_memory_bytes":
			f.memory = outboard.Bytes(value)
		case "go_memstats_heap_alloc_bytes":
			f.heap = outboard.Bytes(value)
		}
	}
	if f.goroutines == 0 || f.memory == 0 {
		t.Fatal("the node's metrics lack what is measured")
	}
	return f
}

// getPage gets a page of the node's local API.
func getPage(t testing.TB, n *rig.Node, path string) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, filepath.Join(n.Data(), client.SocketName))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)", path, response.Status, err)
	}
	return string(text)
}

// Bounds on what may be more than before. Descriptors and goroutines: some
// connections between nodes come and go by themselves. Memory: what a Go
// process keeps for its next garbage collection.
const (
	moreDescriptors = 6
	moreGoroutines  = 12
	moreMemory      = 16 << 20
)

// waitForFootprint waits until a node is as it was before, and nothing is left of sessions.
func waitForFootprint(t testing.TB, n *rig.Node, before footprint) {
	t.Helper()
	var now footprint
	ok := func() bool {
		now = measure(t, n)
		return now.processes <= before.processes && now.descriptors <= before.descriptors+moreDescriptors &&
			now.goroutines <= before.goroutines+moreGoroutines && now.memory <= before.memory+before.memory/10+moreMemory &&
			len(list(t, n, "sessions")) == 0 && len(list(t, n, "leases")) == 0
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("%s\nbefore: %v\nafter:  %v\nsessions %v, leases %v", n.Name, before, now, list(t, n, "sessions"), list(t, n, "leases"))
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Logf("%s\nbefore: %v\nafter:  %v", n.Name, before, now)
	eventually(t, n.Name+" has removed the folders of sessions", func() bool {
		left, err := os.ReadDir(filepath.Join(n.Data(), "tmp"))
		return len(left) == 0 && (err == nil || os.IsNotExist(err))
	})
}
