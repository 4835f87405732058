package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// echo answers each message with its payload.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
}

func registerEcho(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, echo{}) }

// The metadata that the swapped policies set: each set its own value, in two policies.
const firstKey, secondKey = "x-bench-first", "x-bench-second"

// UnaryCall answers with the payload, and with the metadata that policies have set.
func (echo) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	out := &testgrpc.SimpleResponse{Payload: in.GetPayload()}
	if in.GetFillUsername() {
		md, _ := metadata.FromIncomingContext(ctx)
		out.Username, out.OauthScope = single(md[firstKey]), single(md[secondKey])
	}
	return out, nil
}

func single(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// StreamingInputCall answers with the number of bytes received.
func (echo) StreamingInputCall(s testgrpc.TestService_StreamingInputCallServer) error {
	total := 0
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&testgrpc.StreamingInputCallResponse{AggregatedPayloadSize: int32(total)})
		}
		if err != nil {
			return err
		}
		total += len(in.GetPayload().GetBody())
	}
}

// StreamingOutputCall sends the messages that the request asks for.
func (echo) StreamingOutputCall(in *testgrpc.StreamingOutputCallRequest, s testgrpc.TestService_StreamingOutputCallServer) error {
	for _, p := range in.GetResponseParameters() {
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(int(p.GetSize()))}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall answers each message with its payload.
func (echo) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}
