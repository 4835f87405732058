package calls_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/internal/calls/callstest"
)

// tide is a service of streams that are as long as the test.
type tide struct {
	callstest.Echo
	stop chan struct{}
}

const countKey = "count"

// StreamingOutputCall sends numbers until the test stops it, as fast as they are taken.
func (s *tide) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, to testgrpc.TestService_StreamingOutputCallServer) error {
	for n := uint64(1); ; n++ {
		select {
		case <-s.stop:
			to.SetTrailer(metadata.Pairs(countKey, strconv.FormatUint(n-1, 10)))
			return nil
		default:
		}
		if err := to.Send(&testgrpc.StreamingOutputCallResponse{Payload: callstest.Payload(n, int(n%4)*5000)}); err != nil {
			return err
		}
	}
}

// StreamingInputCall counts numbers.
func (s *tide) StreamingInputCall(from testgrpc.TestService_StreamingInputCallServer) error {
	for n := uint64(1); ; n++ {
		r, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return from.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: int32(n - 1)})
		}
		if err != nil {
			return err
		}
		if got := callstest.Number(r.GetPayload()); got != n {
			return fmt.Errorf("callee: got %d, want %d", got, n)
		}
	}
}

// voyages are long streams of every kind from one program.
type voyages struct {
	name   string
	client testgrpc.TestServiceClient
	stop   <-chan struct{}
	moved  atomic.Uint64 // messages
}

// out sends numbers.
func (v *voyages) out() error {
	s, err := v.client.StreamingInputCall(context.Background())
	if err != nil {
		return err
	}
	for n := uint64(1); ; n++ {
		select {
		case <-v.stop:
			r, err := s.CloseAndRecv()
			if err != nil || uint64(r.GetAggregatedPayloadSize()) != n-1 {
				return fmt.Errorf("%d sent, %d counted: %w", n-1, r.GetAggregatedPayloadSize(), err)
			}
			return nil
		default:
		}
		if err := s.Send(&testgrpc.StreamingInputCallRequest{Payload: callstest.Payload(n, int(n%3)*3000)}); err != nil {
			_, err = s.CloseAndRecv()
			return fmt.Errorf("send %d: %w", n, err)
		}
		v.moved.Add(1)
	}
}

// in receives numbers. It begins to read when from is closed.
func (v *voyages) in(from <-chan struct{}) error {
	s, err := v.client.StreamingOutputCall(context.Background(), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		return err
	}
	<-from
	for n := uint64(1); ; n++ {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			if got := s.Trailer().Get(countKey); len(got) != 1 || got[0] != strconv.FormatUint(n-1, 10) {
				return fmt.Errorf("%d received, %v sent", n-1, got)
			}
			return nil
		}
		if err != nil || callstest.Number(r.GetPayload()) != n {
			return fmt.Errorf("received %d, want %d: %w", callstest.Number(r.GetPayload()), n, err)
		}
		v.moved.Add(1)
	}
}

// silent says nothing before the end, and then something.
func (v *voyages) silent() error {
	var header metadata.MD
	s, err := v.client.FullDuplexCall(context.Background(), grpc.Header(&header))
	if err != nil {
		return err
	}
	<-v.stop
	for n := range uint64(3) {
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: callstest.Payload(n, 0)}); err != nil {
			_, err = s.Recv()
			return fmt.Errorf("send: %w", err)
		}
		r, err := s.Recv()
		if err != nil || callstest.Number(r.GetPayload()) != n {
			return fmt.Errorf("sent %d, got %d: %w", n, callstest.Number(r.GetPayload()), err)
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

// Long streams of every kind, on shared memory and over TLS, go on through upgrades
// with all their messages in order, and each replaced process ends while they flow.
func TestStreamsOutliveTheirProcess(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.station("harbour"), p.station("dinghy")
	stop := make(chan struct{})
	harbour.serve(&tide{stop: stop})
	clients := map[string]testgrpc.TestServiceClient{"same node": harbour.dial(), "another node": dinghy.dial()}
	ready(t, clients)
	var all []*voyages
	var sailing sync.WaitGroup
	now := make(chan struct{})
	close(now)
	for name, c := range clients {
		v := &voyages{name: name, client: c, stop: stop}
		all = append(all, v)
		for kind, sail := range map[string]func() error{
			"out": v.out, "in": func() error { return v.in(now) }, "silent": v.silent,
			"in, not read": func() error { return v.in(stop) },
		} {
			sailing.Go(func() {
				if err := sail(); err != nil {
					t.Errorf("%s, %s: %v", name, kind, err)
				}
			})
		}
	}
	flows := func() {
		t.Helper()
		for _, v := range all {
			before := v.moved.Load()
			await(t, v.name+" flows", func() bool { return t.Failed() || v.moved.Load() > before+20 })
		}
	}
	flows()
	for n := range upgrades {
		stations := [][]*station{{harbour}, {dinghy}, {harbour, dinghy}}[n%3]
		var upgrading sync.WaitGroup
		for _, s := range stations {
			upgrading.Go(func() {
				if _, err := s.Upgrade(t.Context(), ""); err != nil {
					t.Error(err)
				}
			})
		}
		upgrading.Wait()
		for _, s := range stations {
			await(t, string(s.name)+" has one process", func() bool { return t.Failed() || len(s.Processes()) == 1 })
		}
		flows()
		if t.Failed() {
			break
		}
	}
	close(stop)
	sailing.Wait()
}
