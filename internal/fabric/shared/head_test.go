package shared

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// FuzzHeads reads what a peer may write as a head. What is accepted means the
// same when it is written again.
func FuzzHeads(f *testing.F) {
	f.Add(appendHead(nil, &call.Head{Tenant: "t", Subtype: "json", Priority: call.Low, Attempt: 2, Metadata: metadata.Pairs("k", "v")}), uint32(0))
	f.Add(appendOutcome(nil, call.End{Trailer: metadata.Pairs("k", "v")}, status.New(codes.Aborted, "m")), uint32(10))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, code uint32) {
		var h, again call.Head
		if scanHead(&scanner{rest: string(b)}, &h) == nil {
			if err := scanHead(&scanner{rest: string(appendHead(nil, &h))}, &again); err != nil {
				t.Errorf("written again: %v", err)
			}
			if diff := cmp.Diff(h, again); diff != "" && len(h.Metadata) > 0 {
				t.Error(diff)
			}
		}
		if _, err, broken := scanOutcome(b, codes.Code(code), true); broken == nil && err == nil && code != 0 {
			t.Errorf("code %d is no error", code)
		}
	})
}

// TestPriorityOrdersWaiters lets three wait for room, the lowest first.
func TestPriorityOrdersWaiters(t *testing.T) {
	c, _, _ := against(t, dialler, Options{Heap: minHeap, Slots: 8})
	e := &c.caller.laneEnd
	room := false
	var order []call.Priority
	done := make(chan bool)
	e.mu.Lock()
	e.reading = true // nobody reads: only feed wakes
	e.mu.Unlock()
	priorities := []call.Priority{call.Low, call.Normal, call.High}
	for _, p := range priorities {
		go func() {
			_ = e.acquire(t.Context(), heapSpace, p, func() (bool, error) {
				e.mu.Lock()
				defer e.mu.Unlock()
				if room {
					order = append(order, p)
				}
				return room, nil
			})
			done <- true
		}()
		for begin := time.Now(); ; {
			e.mu.Lock()
			waits := len(e.waiting[heapSpace][rank(p)]) == 1
			e.mu.Unlock()
			if waits || time.Since(begin) > 2*time.Minute {
				break
			}
		}
	}
	e.mu.Lock()
	room = true
	e.wakeSendersLocked()
	e.mu.Unlock()
	for range priorities {
		<-done
	}
	e.mu.Lock()
	e.reading = false
	e.mu.Unlock()
	if diff := cmp.Diff([]call.Priority{call.High, call.Normal, call.Low}, order); diff != "" {
		t.Error(diff)
	}
	if err := e.acquire(nil, heapSpace, call.Low, func() (bool, error) { return false, nil }); !errors.Is(err, errWouldBlock) { //nolint:staticcheck // nil says that we don't wait
		t.Errorf("without waiting: %v", err)
	}
}
