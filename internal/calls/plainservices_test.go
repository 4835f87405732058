package calls_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

const testService = "grpc.testing.TestService"

// The plain port answers the health checks of gRPC: a service is healthy while it has an endpoint
// anywhere in the pool, and the node while it answers.
func TestHealth(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	c := grpc_health_v1.NewHealthClient(dinghy.dialPlain(t))
	check := func(service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, codes.Code) {
		r, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		return r.GetStatus(), status.Code(err)
	}
	if s, code := check(""); s != grpc_health_v1.HealthCheckResponse_SERVING || code != codes.OK {
		t.Errorf("the node is %v, %v", s, code)
	}
	if _, code := check(testService); code != codes.NotFound {
		t.Errorf("a service that no program has served: %v", code)
	}
	watch, err := c.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: testService})
	if err != nil {
		t.Fatal(err)
	}
	next := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	if s := next(); s != grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Errorf("before a program serves it the service is %v", s)
	}
	program := harbour.serve(t, interop.NewTestServer())
	// The service is described before it has an endpoint.
	s := next()
	for s == grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		s = next()
	}
	if s != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("with a program the service is %v", s)
	}
	dinghy.endpoints(t, 1)
	if s, code := check(testService); s != grpc_health_v1.HealthCheckResponse_SERVING || code != codes.OK {
		t.Errorf("with a program on another node the service is %v, %v", s, code)
	}
	list, err := c.List(t.Context(), &grpc_health_v1.HealthListRequest{})
	if err != nil || list.GetStatuses()[testService].GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING || list.GetStatuses()[""] == nil {
		t.Errorf("the list is %v: %v", list.GetStatuses(), err)
	}
	program.Stop()
	if s := next(); s == grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("without a program the service is %v", s)
	}
	dinghy.endpoints(t, 0)
	if s, _ := check(testService); s == grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("without a program a check says %v", s)
	}
}

// The plain port answers gRPC's reflection for the services of the whole pool, so that tools such
// as grpcurl need no files.
func TestReflection(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, interop.NewTestServer())
	dinghy.endpoints(t, 1)
	dinghy.eventually(t, "the service is described", func() bool { return slices.Contains(dinghy.registry.Described(), testService) })
	stream, err := reflection.NewServerReflectionClient(dinghy.dialPlain(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflection.ServerReflectionRequest) *reflection.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	symbol := func(name string) *reflection.ServerReflectionResponse {
		return ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	}
	file := func(name string) *reflection.ServerReflectionResponse {
		return ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: name}})
	}
	var names []string
	for _, s := range ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, testService) {
		t.Errorf("the services are %q", names)
	}
	for name, r := range map[string]*reflection.ServerReflectionResponse{
		"a service": symbol(testService), "a message": symbol("grpc.testing.SimpleRequest"), "a message of an import": symbol("grpc.testing.Empty"),
		"a file": file("grpc/testing/test.proto"), "an import": file("grpc/testing/empty.proto"),
	} {
		if len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s is not found: %v", name, r.GetErrorResponse())
		}
	}
	for name, r := range map[string]*reflection.ServerReflectionResponse{"a symbol": symbol("shop.None"), "a file": file("none.proto")} {
		if r.GetErrorResponse().GetErrorCode() != int32(codes.NotFound) {
			t.Errorf("%s that is in no file: %v", name, r)
		}
	}
}
