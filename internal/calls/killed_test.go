package calls_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/calls/callstest"
)

// expected says that a killed process explains an error.
func expected(err error) bool {
	code := status.Code(err)
	return err == nil || code == codes.Unavailable || code == codes.Canceled
}

// Whichever process is killed at whatever step of an upgrade, while streams move: they
// go on or end with Unavailable, no message is wrong, nothing hangs, and calls go on.
func TestKilledWhileStreamsMove(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.station("harbour"), p.station("dinghy")
	harbour.serve(callstest.Echo{})
	clients := map[string]testgrpc.TestServiceClient{"same node": harbour.dial(), "another node": dinghy.dial()}
	for round := range 6 {
		ready(t, clients)
		s := []*station{harbour, dinghy}[round%2]
		stop := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		var streams sync.WaitGroup
		for name, c := range clients {
			for range 3 {
				streams.Go(func() {
					if err := callstest.Chat(ctx, c, 0, func() bool { return open(stop) }, func() {}); !expected(err) {
						t.Errorf("round %d, %s: %v", round, name, err)
					}
				})
			}
		}
		old := s.Processes()
		upgraded := make(chan struct{})
		go func() {
			defer close(upgraded)
			_, _ = s.Upgrade(t.Context(), "") // it may fail: a process is killed
		}()
		step := time.NewTimer(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
		<-step.C
		all := s.Processes()
		victim := all[rand.IntN(len(all))]
		if rand.IntN(2) == 0 {
			victim = old[0]
		}
		if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
		<-upgraded
		ready(t, clients)
		close(stop)
		streams.Wait()
		if ctx.Err() != nil {
			t.Fatalf("round %d: a stream hung", round)
		}
		cancel()
		await(t, "one process", func() bool { return len(s.Processes()) == 1 })
	}
}

// A process that does not run is reported, though it has not ended.
func TestHealthOfAStoppedProcess(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	if err := harbour.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := harbour.Processes()[0].PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "all threads have stopped", func() bool { return allThreadsStopped(t, pid) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := harbour.Health(ctx); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := harbour.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

// allThreadsStopped reports whether no thread of a process runs: a signal stops them some time after
// it was sent.
func allThreadsStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of process %d: %v (%v)", pid, threads, err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		return err == nil && !bytes.Contains(stat, []byte(") T "))
	})
}
