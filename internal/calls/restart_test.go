package calls_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/internal/calls/callstest"
)

// caller makes unary calls, small ones and those whose messages lie in the shared heap, and
// streams until stop is closed. It counts the calls.
func caller(t *testing.T, name string, conn grpc.ClientConnInterface, stop <-chan struct{}, made *atomic.Int64) {
	c := testgrpc.NewTestServiceClient(conn)
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		size := 1 + 40_000*(n%2)
		in := &testgrpc.SimpleRequest{ResponseSize: int32(size), Payload: &testgrpc.Payload{Body: make([]byte, size)}}
		if _, err := c.UnaryCall(t.Context(), in); err != nil {
			t.Errorf("%s: unary call %d: %v", name, n, err)
			return
		}
		if n%8 == 0 {
			if err := pingPong(t.Context(), c); err != nil {
				t.Errorf("%s: stream %d: %v", name, n, err)
				return
			}
		}
		made.Add(1)
	}
}

func pingPong(ctx context.Context, c testgrpc.TestServiceClient) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		err := s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 10}}})
		if err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err = s.Recv(); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Two programs of a service are restarted in turn: no call of their own node and none of
// another node is lost.
func TestRollingRestart(t *testing.T) {
	for name, test := range map[string]struct {
		remote   bool
		restarts int
	}{
		"callers on the node":         {false, 40},
		"callers on another node too": {true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			harbour := p.member("harbour")
			callers := []*member{harbour, harbour}
			if test.remote {
				callers = append(callers, p.member("dinghy"))
			}
			ready := func() {
				for _, m := range callers {
					m.endpoints(t, 2)
				}
			}
			start := func() *callstest.Program { return harbour.serve(t, interop.NewTestServer()) }
			programs := []*callstest.Program{start(), start()}
			ready()
			var made atomic.Int64
			var calling sync.WaitGroup
			stop := make(chan struct{})
			for i, m := range callers {
				conn := m.dial(t)
				waitServed(t, testgrpc.NewTestServiceClient(conn))
				calling.Go(func() { caller(t, []string{"harbour", "harbour", "dinghy"}[i], conn, stop, &made) })
			}
			for n := range test.restarts {
				if n%4 < 2 {
					programs[n%2].StopGracefully()
				} else {
					programs[n%2].Stop()
				}
				for before := made.Load(); made.Load() < before+20 && !t.Failed(); {
					<-time.After(time.Millisecond)
				}
				programs[n%2] = start()
				ready()
			}
			close(stop)
			calling.Wait()
			for _, p := range programs {
				p.StopGracefully()
			}
			t.Logf("%d calls, %d restarts", made.Load(), test.restarts)
		})
	}
}
