package calls_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/calls/callstest"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// gather sends messages of a client stream, and checks that all of them were counted.
func gather(ctx context.Context, c testgrpc.TestServiceClient, sizes ...int) error {
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	for n, size := range sizes {
		err := s.Send(&testgrpc.StreamingInputCallRequest{Payload: callstest.Payload(uint64(n+1), size)})
		if errors.Is(err, io.EOF) {
			break // CloseAndRecv returns the reason
		}
		if err != nil {
			return err
		}
	}
	r, err := s.CloseAndRecv()
	if err == nil && int(r.GetAggregatedPayloadSize()) != len(sizes) {
		err = fmt.Errorf("%d messages were sent, %d counted", len(sizes), r.GetAggregatedPayloadSize())
	}
	return err
}

// Calls and streams of another node that reach a node whose program has left go to another
// endpoint, with all their messages.
func TestProgramThatHasLeft(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, &tide{})
	left := services.Endpoint{ID: "harbour/left", Services: []string{testService}}
	if err := harbour.registry.Offer(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	dinghy.endpoints(t, 2)
	waitServed(t, testgrpc.NewTestServiceClient(dinghy.dial(t)))
	for name, conn := range map[string]testgrpc.TestServiceClient{
		"programs": testgrpc.NewTestServiceClient(dinghy.dial(t)), "plain gRPC": testgrpc.NewTestServiceClient(dinghy.dialPlain(t)),
	} {
		for kind, call := range map[string]func(n uint64) error{
			"unary":         func(n uint64) error { return callstest.Call(t.Context(), conn, n, 300_000) },
			"burst":         func(n uint64) error { return callstest.Burst(t.Context(), conn, n, 3, 1000) },
			"large burst":   func(n uint64) error { return callstest.Burst(t.Context(), conn, n, 1, 300_000) },
			"client stream": func(uint64) error { return gather(t.Context(), conn, 1, 40_000, 300_000, 1) },
		} {
			for n := range uint64(24) {
				if err := call(n); err != nil {
					t.Errorf("%s, %s %d: %v", name, kind, n, err)
				}
			}
		}
	}
}

// liar is a program that claims in its trailer that no program received the call.
type liar struct {
	callstest.Echo
	calls atomic.Int64
}

func (l *liar) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	l.calls.Add(1)
	s.SetTrailer(metadata.Pairs(offer.UnsentKey, "1", "other", "2"))
	return status.Error(codes.Unavailable, "not now")
}

// A program can't make another node send a stream again.
func TestProgramCannotClaimThatAStreamIsUnsent(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	program := &liar{}
	harbour.serve(t, program)
	dinghy.endpoints(t, 1)
	c := testgrpc.NewTestServiceClient(dinghy.dialPlain(t))
	waitServed(t, c)
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	if got := s.Trailer(); status.Convert(err).Message() != "not now" || got[offer.UnsentKey] != nil || len(got["other"]) != 1 {
		t.Errorf("%v with trailer %v", err, got)
	}
	if n := program.calls.Load(); n != 1 {
		t.Errorf("the program was called %d times", n)
	}
}
