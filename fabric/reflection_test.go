package fabric

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// TestReflection asks for the services as grpcurl does.
func TestReflection(t *testing.T) {
	l, err := Listen("grpc:127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveFabric(t, l, registerInterop, sides{})
	s, err := reflection.NewServerReflectionClient(dialGo(t, l.Addr().String(), sides{})).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := reflected(t, s, &reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse()
	if !slices.ContainsFunc(names.GetService(), func(s *reflection.ServiceResponse) bool { return s.GetName() == "grpc.testing.TestService" }) {
		t.Errorf("got %v, want the test service too", names)
	}
	file := reflected(t, s, &reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "grpc.testing.TestService"},
	}).GetFileDescriptorResponse()
	if len(file.GetFileDescriptorProto()) == 0 {
		t.Error("got no descriptor of the test service")
	}
}

func reflected(t *testing.T, s grpc.BidiStreamingClient[reflection.ServerReflectionRequest, reflection.ServerReflectionResponse], ask *reflection.ServerReflectionRequest) *reflection.ServerReflectionResponse {
	t.Helper()
	if err := s.Send(ask); err != nil {
		t.Fatal(err)
	}
	answer, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
