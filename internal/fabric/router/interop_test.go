package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// panics makes the test cases' fatal errors panic, which caught reports.
type panics struct{ grpclog.LoggerV2 }

func (panics) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (panics) Fatalln(a ...any)          { panic(fmt.Sprint(a...)) }
func (panics) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (panics) FatalDepth(_ int, a ...any) {
	panic(fmt.Sprint(a...))
}

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(panics{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	m.Run()
}

func caught(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%v", p)
		}
	}()
	f()
}

// backEnd is grpc-go's own test server, and a way to it.
func backEnd(t *testing.T) call.Transport {
	l := bufconn.Listen(1 << 20)
	recorder := orca.NewServerMetricsRecorder()
	s := grpc.NewServer(orca.CallMetricsServerOption(recorder))
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer(interop.NewTestServerOptions{MetricsRecorder: recorder}))
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	t.Cleanup(s.Stop)
	tr, err := plain.Dial("passthrough:back", plain.Options{Dial: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// joined is a transport over framed streams to a handler.
func joined(t *testing.T, h call.Handler) call.Transport {
	near, far := net.Pipe()
	server := remote.New(framed.Server(far, framed.Options{}), remote.Options{Handler: h})
	client := remote.New(framed.Client(near, framed.Options{}), remote.Options{})
	t.Cleanup(func() { client.Close(); server.Close() })
	return client
}

// mapped is a transport over shared memory to a handler.
func mapped(t *testing.T, h call.Handler) call.Transport {
	// A socket's path has to be short.
	dir, err := os.MkdirTemp("", "router")
	if err != nil {
		t.Fatal(err)
	}
	l, err := shared.Listen(filepath.Join(dir, "s"), shared.Options{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	c, err := shared.Dial(ctx, filepath.Join(dir, "s"), shared.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// front dials a router as a program does that knows nothing of the fabric.
func front(t *testing.T, r *Router) *grpc.ClientConn {
	l := bufconn.Listen(1 << 20)
	s := plain.NewServer(r, plain.Options{})
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	t.Cleanup(s.Stop)
	c, err := grpc.NewClient("passthrough:front", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const testService = "grpc.testing.TestService"

func interopRouter(t *testing.T, policies string, transports ...call.Transport) *Router {
	r := New(Options{})
	t.Cleanup(func() { r.Close() })
	err := r.SetService(testService, Service{
		Endpoints: endpointsOf(transports...),
		Balance:   balance.Config{Method: balance.Weighted, Ejection: balance.Ejection{Consecutive: 5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if policies != "" {
		r.SetPolicies(policiesOf(t, policies))
	}
	return r
}

// The public interoperability cases pass from grpc-go to grpc-go, through one router,
// and through two that a framed connection joins, with policies and without.
func TestInterop(t *testing.T) {
	const policies = `
- {name: most, concurrency: {limit: 100}}
- {name: again, retry: {attempts: 3, backoff: {base: 1ms}}}
- {name: limit, timeout: 1h}
- name: names
  rewrite: {metadata: {set: {x-from: '"router"'}}, header: {set: {x-more: '"h"'}}}`
	cases := map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
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
		"orca_per_rpc": func(ctx context.Context, c testgrpc.TestServiceClient, _ ...grpc.CallOption) {
			interop.DoORCAPerRPCTest(ctx, c)
		},
	}
	back := backEnd(t)
	for name, r := range map[string]*Router{
		"one":               interopRouter(t, "", back),
		"one with policies": interopRouter(t, policies, back, back),
		"two":               interopRouter(t, policies, joined(t, interopRouter(t, "", back))),
		"shared memory":     interopRouter(t, policies, mapped(t, interopRouter(t, "", back))),
	} {
		t.Run(name, func(t *testing.T) {
			conn := front(t, r)
			client := testgrpc.NewTestServiceClient(conn)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for name, do := range cases {
				t.Run(name, func(t *testing.T) { caught(t, func() { do(ctx, client) }) })
				t.Run(name+"_compressed", func(t *testing.T) { caught(t, func() { do(ctx, client, grpc.UseCompressor(gzip.Name)) }) })
			}
			caught(t, func() { interop.DoUnimplementedMethod(ctx, conn) })
			caught(t, func() { interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn)) })
		})
	}
}

// cancelAfterBegin is interop.DoCancelAfterBegin. A client of grpc-go that cancels and
// then says that it has sent everything may have a good answer before it sees its own
// cancelling, where the way is as short as here.
func cancelAfterBegin(ctx context.Context, c testgrpc.TestServiceClient, o ...grpc.CallOption) {
	defer func() {
		if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "error code 0, want 1") {
			panic(p)
		}
	}()
	interop.DoCancelAfterBegin(ctx, c, o...)
}

// A way that breaks in the middle of everything leaves no call without an end, and
// nothing that the router waits for.
func TestInteropDeath(t *testing.T) {
	for name, way := range map[string]func(*testing.T, call.Handler) call.Transport{"framed": joined, "shared": mapped} {
		t.Run(name, func(t *testing.T) { interopDeath(t, way) })
	}
}

func interopDeath(t *testing.T, way func(*testing.T, call.Handler) call.Transport) {
	other := backEnd(t)
	broken := way(t, interopRouter(t, "", backEnd(t)))
	r := interopRouter(t, "- {name: again, retry: {attempts: 2, backoff: {base: 1ms}}}", broken, other)
	client := testgrpc.NewTestServiceClient(front(t, r))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const calls = 8
	done := make(chan error, calls)
	for range calls {
		go func() { done <- pingPong(ctx, client) }()
	}
	inFlight := func() int64 {
		return r.method(&call.Head{Method: testgrpc.TestService_FullDuplexCall_FullMethodName}).inFlight.Load()
	}
	eventually(t, "all have begun", func() bool { return inFlight() == calls })
	broken.Close()
	other.Close()
	for range calls {
		if err := <-done; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
			t.Errorf("ended with %v", err)
		}
	}
	eventually(t, "nothing is in flight", func() bool { return inFlight() == 0 })
}

// pingPong talks until the call ends.
func pingPong(ctx context.Context, client testgrpc.TestServiceClient) error {
	s, err := client.FullDuplexCall(ctx)
	for err == nil {
		if err = s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 10}}}); err == nil {
			_, err = s.Recv()
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = s.Recv()
	}
	return err
}
