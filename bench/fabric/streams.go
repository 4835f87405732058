package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// streamMessages is the number of messages of a stream in one direction: enough that its beginning
// and its end do not matter.
const streamMessages = 1000

// uploadCaller returns a function that sends the messages of a stream.
func uploadCaller(ctx context.Context, c grpc.ClientConnInterface, size int) func() error {
	l := mixedLoad{Bytes: size * streamMessages, Chunk: size}
	stub := testgrpc.NewTestServiceClient(c)
	return func() error { return sendTransfer(ctx, stub, l) }
}

// downloadCaller returns a function that receives the messages of a stream.
func downloadCaller(ctx context.Context, c grpc.ClientConnInterface, size int) func() error {
	in := &testgrpc.StreamingOutputCallRequest{ResponseParameters: make([]*testgrpc.ResponseParameters, streamMessages)}
	for i := range in.ResponseParameters {
		in.ResponseParameters[i] = &testgrpc.ResponseParameters{Size: int32(size)}
	}
	stub := testgrpc.NewTestServiceClient(c)
	return func() error { return receiveAll(ctx, stub, in, size) }
}

func receiveAll(ctx context.Context, stub testgrpc.TestServiceClient, in *testgrpc.StreamingOutputCallRequest, size int) error {
	s, err := stub.StreamingOutputCall(ctx, in)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		out, err := s.Recv()
		if errors.Is(err, io.EOF) && n == len(in.GetResponseParameters()) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		if len(out.GetPayload().GetBody()) != size {
			return errWrong
		}
	}
}

// pingPongCaller returns a function that sends one message on a stream, and waits for its answer.
func pingPongCaller(ctx context.Context, c grpc.ClientConnInterface, size int) (func() error, error) {
	s, err := testgrpc.NewTestServiceClient(c).FullDuplexCall(ctx)
	if err != nil {
		return nil, err
	}
	in := &testgrpc.StreamingOutputCallRequest{Payload: payload(size)}
	return func() error {
		if err := s.Send(in); err != nil {
			return err
		}
		out, err := s.Recv()
		if err == nil && len(out.GetPayload().GetBody()) != size {
			err = errWrong
		}
		return err
	}, nil
}
