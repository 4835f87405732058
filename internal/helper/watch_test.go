package helper

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
)

// watched watches a process that handles its messages with handle, with pings every millisecond.
func watched(ctx context.Context, t *testing.T, limit time.Duration, handle func(process *ipc.Conn, m *ipc.Message)) bool {
	t.Helper()
	near, far, err := ipc.Pair(ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	process, err := ipc.FromFile(far, ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(near.Close(), process.Close()) })
	go near.Serve((*ipc.Message).Close)
	go process.Serve(func(m *ipc.Message) {
		defer m.Close()
		handle(process, m)
	})
	return Watch(ctx, near, Pings{Kind: "ping", Interval: time.Millisecond, Limit: limit})
}

func TestWatchFindsUnresponsiveProcess(t *testing.T) {
	if !watched(t.Context(), t, time.Millisecond, func(*ipc.Conn, *ipc.Message) {}) {
		t.Error("the process is taken for responsive")
	}
}

// A process that answers, also that it does not know the message, is responsive until it ends.
func TestWatchOfResponsiveProcess(t *testing.T) {
	var answered atomic.Int32
	if watched(t.Context(), t, time.Minute, func(process *ipc.Conn, m *ipc.Message) {
		if answered.Add(1) == 3 {
			_ = process.Close()
			return
		}
		_ = process.Reply(m, nil, outboard.Errorf(outboard.Protocol, "test", "unknown message"))
	}) {
		t.Error("the process is taken for unresponsive")
	}
	if n := answered.Load(); n != 3 {
		t.Errorf("%d pings", n)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if watched(ctx, t, time.Minute, func(*ipc.Conn, *ipc.Message) { cancel() }) {
		t.Error("the process is taken for unresponsive")
	}
}
