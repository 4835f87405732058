package shared_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// threads is how many operating system threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nThreads:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestIdleConnectionsTakeNoThreads: connections without calls, and those whose calls all wait,
// take no thread each, and serve a call as soon as one comes.
func TestIdleConnectionsTakeNoThreads(t *testing.T) {
	const count = 200
	release := make(chan struct{})
	var held atomic.Int64
	handler := unaries(func(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if h.Name() == "Hold" {
			held.Add(1)
			<-release
		}
		return m, call.End{}, nil
	})
	// Without the bound of a sleep a lost wake-up hangs the test.
	options := shared.Patient(shared.Options{Handler: handler, Heap: 64 << 10})
	path := serve(t, options, welcome)
	before := threads(t)
	var conns []*shared.Conn
	for range count {
		conns = append(conns, dial(t, path, shared.Patient(shared.Options{Handler: handler})))
	}
	echo := func() {
		for _, c := range conns {
			m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Echo"}, &call.Message{Data: []byte("ahoy")})
			if err != nil {
				t.Fatal(err)
			}
			m.Free()
		}
	}
	awaitParked := func() {
		for _, c := range conns {
			for limit := time.Now().Add(2 * time.Minute); !shared.IsParked(c); runtime.Gosched() {
				if time.Now().After(limit) {
					t.Fatal("the reader of an idle connection does not park")
				}
			}
		}
	}
	awaitParked()
	if now := threads(t); now > before+count/4 {
		t.Errorf("%d idle connections, and %d threads more", count, now-before)
	}
	echo()
	awaitParked()
	echo()
	var holding sync.WaitGroup
	for _, c := range conns {
		holding.Go(func() {
			m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/Hold"}, &call.Message{Data: []byte("ahoy")})
			if err != nil {
				t.Error(err)
			}
			m.Free()
		})
	}
	for held.Load() < count && t.Context().Err() == nil {
		runtime.Gosched()
	}
	close(release)
	holding.Wait()
	echo()
}
