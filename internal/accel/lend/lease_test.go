package lend

import (
	"fmt"
	"log/slog"
	"strings"
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
	quota   outboard.Bytes
	used    outboard.Bytes
	answers chan outboard.Bytes
	reclaim chan struct{}
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
	w := &quotaWorker{id: id, conn: far, lease: l, answers: make(chan outboard.Bytes, 1), reclaim: make(chan struct{}, 16)}
	w.quota = *l.join(id, near)
	go func() {
		for {
			m, err := w.conn.Receive()
			switch {
			case err != nil:
				return
			case m.Type == control.TypeQuota:
				w.answers <- m.Bytes
			case m.Type == control.TypeReclaim:
				w.reclaim <- struct{}{}
			}
		}
	}()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return w
}

// allocate reserves what the quota lacks, as a worker does.
func (w *quotaWorker) allocate(bytes outboard.Bytes) bool {
	if missing := w.used + bytes - min(w.quota, w.used+bytes); missing > 0 {
		go w.lease.handleMessage(w.id, control.Message{Type: control.TypeReserve, Bytes: missing})
		w.quota += <-w.answers
	}
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
	first.allocate(10 << 20)
	go func() {
		<-first.reclaim
		surplus := first.quota - first.used
		first.quota = first.used
		l.handleMessage("first", control.Message{Type: control.TypeRelease, Bytes: surplus})
	}()
	second := joinLease(t, l, "second")
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

// A worker that lies about what it returns gets no more than the lease has.
func TestLyingWorker(t *testing.T) {
	l := newLeaseState(64 << 20)
	w := joinLease(t, l, "liar")
	l.handleMessage("liar", control.Message{Type: control.TypeRelease, Bytes: 1 << 60})
	other := joinLease(t, l, "other")
	if free := l.free(); free != 0 || other.quota != 64<<20 || w.quota == 0 {
		t.Errorf("free %v, quota %v", free, other.quota)
	}
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
