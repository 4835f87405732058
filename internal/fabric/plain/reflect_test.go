package plain

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// reflecting is a server of ours in front of a grpc-go one, whose descriptors it
// has learned.
func reflecting(t *testing.T) (addr string, learned *Learned) {
	t.Helper()
	s := grpc.NewServer()
	up := serveBackend(t, s)
	reflection.Register(s)
	up.start()
	to := dial(t, up.addr, Options{})
	learned, err := Learn(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	return front(t, proxy{to}, Options{Descriptors: learned, Health: health.NewServer()}), learned
}

func TestReflection(t *testing.T) {
	addr, learned := reflecting(t)
	if got, want := learned.Services(), []string{"grpc.testing.TestService"}; !slices.Equal(got, want) {
		t.Errorf("learned %q, want %q", got, want)
	}
	if _, err := learned.FindDescriptorByName("grpc.testing.SimpleRequest"); err != nil {
		t.Error(err)
	}
	// What Learn learns of us is the same, and health.
	again, err := Learn(t.Context(), dial(t, addr, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Services(), []string{"grpc.health.v1.Health", "grpc.testing.TestService"}; !slices.Equal(got, want) {
		t.Errorf("we show %q, want %q", got, want)
	}
	// And by the old version.
	if again, err = learn(t.Context(), dial(t, addr, Options{}), reflectionAlpha); err != nil || len(again.Services()) != 2 {
		t.Errorf("v1alpha: %v, %v", again, err)
	}
}

// undescribed are descriptors that lack one of the services.
type undescribed struct{ *Learned }

func (u undescribed) Services() []string { return append(u.Learned.Services(), "shop.Undescribed") }

// Clients request the descriptors of all services that reflection lists.
func TestUndescribedServicesAreNotListed(t *testing.T) {
	_, learned := reflecting(t)
	addr := front(t, proxy{nil}, Options{Descriptors: undescribed{learned}})
	again, err := Learn(t.Context(), dial(t, addr, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Services(), learned.Services(); !slices.Equal(got, want) {
		t.Errorf("reflection lists %q, want %q", got, want)
	}
}

// TestLearnAlpha learns from a server of the old version only.
func TestLearnAlpha(t *testing.T) {
	s := grpc.NewServer()
	up := serveBackend(t, s)
	reflectionv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(reflection.ServerOptions{Services: s}))
	up.start()
	learned, err := Learn(t.Context(), dial(t, up.addr, Options{}))
	if err != nil || !slices.Contains(learned.Services(), "grpc.testing.TestService") {
		t.Error(learned, err)
	}
}

// TestLearnFromLiars has peers whose reflection makes no sense.
func TestLearnFromLiars(t *testing.T) {
	for name, answer := range map[string]*reflectionv1.ServerReflectionResponse{
		"nothing":      {},
		"wrong answer": {MessageResponse: &reflectionv1.ServerReflectionResponse_AllExtensionNumbersResponse{}},
		"no file": {MessageResponse: &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{
			FileDescriptorResponse: &reflectionv1.FileDescriptorResponse{FileDescriptorProto: [][]byte{{0xff}}},
		}},
		"always services": {MessageResponse: &reflectionv1.ServerReflectionResponse_ListServicesResponse{
			ListServicesResponse: &reflectionv1.ListServiceResponse{Service: []*reflectionv1.ServiceResponse{{Name: "x.Y"}}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := grpc.NewServer()
			up := serveBackend(t, s)
			reflectionv1.RegisterServerReflectionServer(s, liar{answer: answer})
			up.start()
			learned, err := Learn(t.Context(), dial(t, up.addr, Options{}))
			if err == nil {
				if _, err := learned.FindDescriptorByName("x.Y"); err == nil {
					t.Error("learned what was never told")
				}
			}
		})
	}
}

type liar struct {
	reflectionv1.UnimplementedServerReflectionServer
	answer *reflectionv1.ServerReflectionResponse
}

func (l liar) ServerReflectionInfo(s reflectionv1.ServerReflection_ServerReflectionInfoServer) error {
	for {
		if _, err := s.Recv(); err != nil {
			return nil //nolint:nilerr // the client has closed the stream
		}
		if err := s.Send(l.answer); err != nil {
			return err
		}
	}
}

// grpcurl builds the program that tools/grpcurl names.
func grpcurl(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grpcurl")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../tools/grpcurl", "-ldflags=-s -w", "-o", path, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestGrpcurl runs the real program.
func TestGrpcurl(t *testing.T) {
	path := grpcurl(t)
	addr, _ := reflecting(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"list":     {[]string{addr, "list"}, "grpc.testing.TestService"},
		"describe": {[]string{addr, "describe", "grpc.testing.TestService.UnaryCall"}, "rpc UnaryCall ( .grpc.testing.SimpleRequest )"},
		"call":     {[]string{"-d", `{"response_size": 3}`, addr, "grpc.testing.TestService/UnaryCall"}, `"body": "AAAA"`},
		"stream":   {[]string{"-d", `{"response_parameters": [{"size": 3}, {"size": 6}]}`, addr, "grpc.testing.TestService/StreamingOutputCall"}, `"body": "AAAAAAAA"`},
		"health":   {[]string{addr, "grpc.health.v1.Health/Check"}, "SERVING"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), path, append([]string{"-plaintext"}, c.args...)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// nobody serves no call.
type nobody struct{}

func (nobody) Serve(s call.ServerStream) error {
	return status.Errorf(codes.Unimplemented, "no method %s", s.Head().Method)
}

// One handler serves all calls, to programs in any language.
func ExampleNewServer() {
	var anything call.Handler = nobody{} // it gets the calls of every service
	s := NewServer(anything, Options{Identify: func(context.Context) (tenant, peer string, err error) {
		return "harbour", "", nil // say, from the peer's certificate
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = cc.Invoke(context.Background(), "/any.Service/Method", &testgrpc.Empty{}, &testgrpc.Empty{})
	fmt.Println(status.Code(err))
	_ = cc.Close()
	s.Stop()
	<-served
	// Output: Unimplemented
}
