package calls_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// pingPong exchanges numbers on a stream until stop is closed or the stream fails. It
// returns an error for what no failure of a process explains.
func pingPong(ctx context.Context, c testgrpc.TestServiceClient, stop <-chan struct{}) error {
	fine := func(err error) bool {
		code := status.Code(err)
		return code == codes.Unavailable || code == codes.Canceled
	}
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		if fine(err) {
			return nil
		}
		return err
	}
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return s.CloseSend()
		default:
		}
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: number(n, 0)}); err != nil {
			if _, err = s.Recv(); fine(err) {
				return nil
			}
			return fmt.Errorf("send %d: %w", n, err)
		}
		r, err := s.Recv()
		if fine(err) && err != nil {
			return nil
		}
		if err != nil || numberOf(r.GetPayload()) != n {
			return fmt.Errorf("sent %d, got %d: %w", n, numberOf(r.GetPayload()), err)
		}
	}
}

// Whichever process is killed at whatever step of an upgrade, while streams move: they
// go on or end with Unavailable, no message is wrong, nothing hangs, and calls go on.
func TestKilledWhileStreamsMove(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.station("harbour"), p.station("dinghy")
	harbour.serve(echoes{})
	clients := map[string]testgrpc.TestServiceClient{"same node": harbour.dial(), "another node": dinghy.dial()}
	for round := range 6 {
		ready(t, clients)
		s := []*station{harbour, dinghy}[round%2]
		stop := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var streams sync.WaitGroup
		for name, c := range clients {
			for range 3 {
				streams.Go(func() {
					if err := pingPong(ctx, c, stop); err != nil {
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
