package lend

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/lograte"
)

// quotaWorker is a worker's end that holds memory: it returns what it does not use.
type quotaWorker struct {
	id      outboard.SessionID
	conn    *control.Conn
	lease   *leaseState
	answers chan outboard.Bytes

	mu          sync.Mutex
	quota, used outboard.Bytes
}

func joinLease(t *testing.T, l *leaseState, id outboard.SessionID) *quotaWorker {
	t.Helper()
	near, file, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	far, err := control.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &quotaWorker{id: id, conn: far, lease: l, answers: make(chan outboard.Bytes, 1)}
	w.quota = *l.join(id, near)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return w
}

// run answers the node until the connection ends.
func (w *quotaWorker) run() {
	for {
		m, err := w.conn.Receive()
		switch {
		case err != nil:
			return
		case m.Type == control.TypeQuota:
			w.mu.Lock()
			w.quota += m.Bytes
			w.mu.Unlock()
			w.answers <- m.Bytes
		case m.Type == control.TypeReclaim:
			w.mu.Lock()
			surplus := w.quota - w.used
			w.quota = w.used
			w.mu.Unlock()
			w.lease.handleMessage(w.id, control.Message{Type: control.TypeRelease, Bytes: surplus})
		}
	}
}

// allocate reserves what the quota lacks, as a worker does.
func (w *quotaWorker) allocate(bytes outboard.Bytes) bool {
	w.mu.Lock()
	missing := w.used + bytes - min(w.quota, w.used+bytes)
	w.mu.Unlock()
	if missing > 0 {
		go w.lease.handleMessage(w.id, control.Message{Type: control.TypeReserve, Bytes: missing})
		<-w.answers
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used+bytes > w.quota {
		return false
	}
	w.used += bytes
	return true
}

// Four processes of one program get the lease's memory together, not each.
func TestMemoryIsTheLeases(t *testing.T) {
	const lease = 64 << 20
	l := newLeaseState(lease)
	granted := 0
	for _, id := range []outboard.SessionID{"a", "b", "c", "d"} {
		w := joinLease(t, l, id)
		go w.run()
		if w.allocate(60 << 20) {
			granted++
		}
	}
	if granted != 1 {
		t.Errorf("%d of 4 sessions got 60 of 64 MiB, want one", granted)
	}
}

// Memory that a session does not use is another one's as soon as that needs it, and so is
// that of a session that has ended.
func TestMemoryIsReclaimed(t *testing.T) {
	l := newLeaseState(64 << 20)
	first := joinLease(t, l, "first")
	if first.quota != 64<<20 {
		t.Errorf("the first session has a quota of %v, want all", first.quota)
	}
	go first.run()
	first.allocate(10 << 20)
	second := joinLease(t, l, "second")
	go second.run()
	if !second.allocate(50 << 20) {
		t.Error("the first session's unused memory was not reclaimed")
	}
	if second.allocate(10 << 20) {
		t.Error("more was granted than the lease has")
	}
	l.leave("first")
	if !second.allocate(10 << 20) {
		t.Error("the memory of a session that ended is lost")
	}
}

// A request waits for a session that starts slowly and holds all memory, but not for ever; once all
// sessions have answered it ends at once. What is returned meanwhile is for the request, not for a
// session that joins.
func TestReclaimWaitsForSlowWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 64 << 20
		l := newLeaseState(lease)
		for _, id := range []outboard.SessionID{"slow", "empty", "second"} {
			joinLease(t, l, id)
		}
		state := func() (waiting int, granted outboard.Bytes) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.waiting), l.granted["second"]
		}
		reserve := func() {
			l.handleMessage("second", control.Message{Type: control.TypeReserve, Bytes: 50 << 20})
			l.handleMessage("empty", control.Message{Type: control.TypeRelease})
		}
		reserve()
		time.Sleep(reclaimLimit / 2)
		if waiting, _ := state(); waiting != 1 {
			t.Errorf("%d requests wait for a worker that starts", waiting)
		}
		l.handleMessage("slow", control.Message{Type: control.TypeRelease, Bytes: 10 << 20})
		if waiting, granted := state(); waiting != 0 || granted != 0 {
			t.Errorf("%d requests wait, %v are granted, although no session returns more", waiting, granted)
		}
		reserve()
		time.Sleep(2 * reclaimLimit)
		if waiting, granted := state(); waiting != 0 || granted != 0 {
			t.Errorf("%d requests wait for a worker that does not answer, %v are granted", waiting, granted)
		}
		reserve()
		if late := joinLease(t, l, "late"); late.quota != 0 {
			t.Errorf("a session that joins gets %v, for which another one waits", late.quota)
		}
		l.handleMessage("slow", control.Message{Type: control.TypeRelease, Bytes: lease})
		if waiting, granted := state(); waiting != 0 || granted != 50<<20 {
			t.Errorf("%d requests wait, %v are granted", waiting, granted)
		}
	})
}

// A worker that lies about what it returns gets no more than the lease has.
func TestLyingWorker(t *testing.T) {
	l := newLeaseState(64 << 20)
	w := joinLease(t, l, "liar")
	l.handleMessage("liar", control.Message{Type: control.TypeRelease, Bytes: 1 << 60})
	other := joinLease(t, l, "other")
	if free := l.free(); free != 0 || other.quota != 64<<20 || w.quota == 0 {
		t.Errorf("free %v, quota %v", free, other.quota)
	}
	go w.run()
	go other.run()
	if w.allocate(1 << 62) {
		t.Error("an impossible request was granted")
	}
}

// The sessions of a lease share the bound.
func TestLogLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		host := &Host{opts: Options{Log: slog.New(slog.NewTextHandler(&out, nil))}}
		lease := newLeaseState(0)
		for range 50_000 {
			for _, s := range []*Session{{host: host, lease: lease}, {host: host, lease: lease}} {
				s.log(control.Message{Text: "line"})
			}
		}
		time.Sleep(time.Second) // of the fake clock
		s := Session{host: host, lease: lease}
		if text := s.log(control.Message{Text: "line"}); text == "" {
			t.Error("no line after a second")
		}
		if got := strings.Count(out.String(), "text=line"); got != lograte.Burst+1 {
			t.Errorf("%d lines, want %d", got, lograte.Burst+1)
		}
		if want := fmt.Sprintf("lines=%d", 100_000-lograte.Burst); !strings.Contains(out.String(), want) {
			t.Errorf("no record with %s", want)
		}
	})
}
