package fabric

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// scripted is a test service that does what a test wants.
type scripted struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error)
	input  func(testgrpc.TestService_StreamingInputCallServer) error
	output func(*testgrpc.StreamingOutputCallRequest, testgrpc.TestService_StreamingOutputCallServer) error
	duplex func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s *scripted) register(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, s) }

func (s *scripted) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if s.unary == nil {
		return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
	}
	return s.unary(ctx, in)
}

func (s *scripted) StreamingInputCall(ss testgrpc.TestService_StreamingInputCallServer) error {
	return s.input(ss)
}

func (s *scripted) StreamingOutputCall(in *testgrpc.StreamingOutputCallRequest, ss testgrpc.TestService_StreamingOutputCallServer) error {
	return s.output(in, ss)
}

func (s *scripted) FullDuplexCall(ss testgrpc.TestService_FullDuplexCallServer) error {
	return s.duplex(ss)
}

// An outcome is what a caller sees of its calls.
type outcome struct {
	Errors  []string // code and message, with details
	Header  metadata.MD
	Trailer metadata.MD
	Notes   []string
}

func (o *outcome) note(format string, args ...any) {
	o.Notes = append(o.Notes, fmt.Sprintf(format, args...))
}

// failed adds an error, nil too.
func (o *outcome) failed(err error) {
	text := fmt.Sprint(err)
	if s, ok := status.FromError(err); ok {
		text = fmt.Sprintf("%v: %q %v", s.Code(), s.Message(), s.Details())
	}
	o.Errors = append(o.Errors, text)
}

// finish keeps of the metadata what programs set, and hides what no two calls share.
func (o *outcome) finish() {
	o.Header, o.Trailer = own(o.Header), own(o.Trailer)
}

func own(md metadata.MD) metadata.MD {
	kept := metadata.MD{}
	for k, v := range md {
		if k != "content-type" && k != "grpc-status-details-bin" { // grpc-go shows what it uses itself
			kept[k] = v
		}
	}
	return kept
}

// heard is what a handler got of the caller's metadata, without what HTTP/2 adds.
func heard(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	var all []string
	for k, v := range md {
		if k != "user-agent" && k != "content-type" && k != ":authority" && k != "grpc-accept-encoding" {
			all = append(all, fmt.Sprintf("%s=%q", k, v))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func payload(size int) *testgrpc.Payload { return &testgrpc.Payload{Body: make([]byte, size)} }

func client(c grpc.ClientConnInterface) testgrpc.TestServiceClient {
	return testgrpc.NewTestServiceClient(c)
}

// unaryCall makes one call and keeps what comes back.
func (o *outcome) unaryCall(t *testing.T, ctx context.Context, c grpc.ClientConnInterface, in *testgrpc.SimpleRequest, opts ...grpc.CallOption) { //nolint:revive // t is first everywhere
	t.Helper()
	out, err := client(c).UnaryCall(ctx, in, append(opts, grpc.Header(&o.Header), grpc.Trailer(&o.Trailer))...)
	o.failed(err)
	if err == nil {
		o.note("%s, %d bytes", out.GetUsername(), len(out.GetPayload().GetBody()))
	}
}
