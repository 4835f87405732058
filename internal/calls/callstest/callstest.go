// Package callstest has a service that echoes requests, calls of it that check the responses, and
// programs that serve, for tests and benchmarks of calls.
package callstest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// ErrWrong is the error of a response that does not match its request.
var ErrWrong = errors.New("wrong answer")

// Echo is a service that echoes the payloads of requests.
type Echo struct {
	testgrpc.UnimplementedTestServiceServer
}

// EmptyCall returns an empty response.
func (Echo) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, nil
}

// UnaryCall echoes the request's payload.
func (Echo) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: r.GetPayload()}, nil
}

// FullDuplexCall echoes the payload of each message.
func (Echo) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// Payload returns a payload of size zero bytes and a number.
func Payload(n uint64, size int) *testgrpc.Payload {
	return &testgrpc.Payload{Body: binary.LittleEndian.AppendUint64(make([]byte, size, size+8), n)}
}

// Number returns the number in a payload, 0 if there is none.
func Number(p *testgrpc.Payload) uint64 {
	b := p.GetBody()
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[len(b)-8:])
}

func check(p *testgrpc.Payload, n uint64, size int) error {
	if Number(p) != n || len(p.GetBody()) != size+8 {
		return fmt.Errorf("%w: %d in %d bytes to %d in %d", ErrWrong, Number(p), len(p.GetBody()), n, size+8)
	}
	return nil
}

// Call makes one call.
func Call(ctx context.Context, c testgrpc.TestServiceClient, n uint64, size int) error {
	r, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: Payload(n, size)})
	if err != nil {
		return err
	}
	return check(r.GetPayload(), n, size)
}

// Burst sends all messages of a stream before it reads any.
func Burst(ctx context.Context, c testgrpc.TestServiceClient, n uint64, messages, size int) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for i := range uint64(messages) {
		if err := send(s, n+i, size); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for i := range uint64(messages) {
		if err := receive(s, n+i, size); err != nil {
			return err
		}
	}
	return end(s)
}

// Chat sends one message at a time and waits for its response, until more returns false, and then
// ends the stream. It calls each after each response.
func Chat(ctx context.Context, c testgrpc.TestServiceClient, size int, more func() bool, each func()) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for n := uint64(1); more(); n++ {
		if err := send(s, n, size); err != nil {
			return err
		}
		if err := receive(s, n, size); err != nil {
			return err
		}
		each()
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return end(s)
}

func send(s testgrpc.TestService_FullDuplexCallClient, n uint64, size int) error {
	err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: Payload(n, size)})
	if errors.Is(err, io.EOF) {
		_, err = s.Recv() // Recv returns the reason
	}
	if err != nil {
		return fmt.Errorf("send %d: %w", n, err)
	}
	return nil
}

func receive(s testgrpc.TestService_FullDuplexCallClient, n uint64, size int) error {
	r, err := s.Recv()
	if err != nil {
		return fmt.Errorf("receive %d: %w", n, err)
	}
	return check(r.GetPayload(), n, size)
}

func end(s testgrpc.TestService_FullDuplexCallClient) error {
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("a stream's end: %w", err)
	}
	return nil
}
