package fabric

import (
	"context"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func echoing() *scripted {
	return &scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
		for {
			in, err := ss.Recv()
			if err == io.EOF { //nolint:errorlint // the stream says io.EOF itself
				return nil
			}
			if err != nil {
				return err
			}
			if err := ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
				return err
			}
		}
	}}
}

// BenchmarkUnary is a unary call and its answer, of a caller that can't leave
// and of one that can.
func BenchmarkUnary(b *testing.B) {
	for name, p := range pairings() {
		conn := p.dial(b, echoing().register, sides{})
		for _, size := range []int{64, 4 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { benchUnary(b, context.Background(), conn, size) })
			b.Run(fmt.Sprintf("%s, cancellable/%d", name, size), func(b *testing.B) { benchUnary(b, b.Context(), conn, size) })
		}
	}
}

func benchUnary(b *testing.B, ctx context.Context, conn grpc.ClientConnInterface, size int) { //nolint:revive // b is first everywhere
	in, out := &testgrpc.SimpleRequest{Payload: payload(size)}, new(testgrpc.SimpleResponse)
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.Invoke(ctx, unaryMethod, in, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPingPong is a message and its answer on one stream.
func BenchmarkPingPong(b *testing.B) {
	for name, p := range pairings() {
		conn := p.dial(b, echoing().register, sides{})
		for _, size := range []int{64, 256 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { benchPingPong(b, conn, size) })
		}
	}
}

func benchPingPong(b *testing.B, conn grpc.ClientConnInterface, size int) {
	s, err := client(conn).FullDuplexCall(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	in, out := &testgrpc.StreamingOutputCallRequest{Payload: payload(size)}, new(testgrpc.StreamingOutputCallResponse)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Send(in); err != nil {
			b.Fatal(err)
		}
		if err := s.RecvMsg(out); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOneWay is a message of many in one direction.
func BenchmarkOneWay(b *testing.B) {
	for name, p := range pairings() {
		drain := &scripted{input: func(ss testgrpc.TestService_StreamingInputCallServer) error {
			in := new(testgrpc.StreamingInputCallRequest)
			for {
				err := ss.RecvMsg(in)
				if err == io.EOF { //nolint:errorlint // the stream says io.EOF itself
					return ss.SendAndClose(new(testgrpc.StreamingInputCallResponse))
				}
				if err != nil {
					return err
				}
			}
		}}
		conn := p.dial(b, drain.register, sides{})
		b.Run(name, func(b *testing.B) { benchOneWay(b, conn) })
	}
}

func benchOneWay(b *testing.B, conn grpc.ClientConnInterface) {
	s, err := client(conn).StreamingInputCall(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	in := &testgrpc.StreamingInputCallRequest{Payload: payload(64)}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Send(in); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.CloseAndRecv(); err != nil {
		b.Fatal(err)
	}
}
