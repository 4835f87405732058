package calls_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/tenant/peer"
)

// identify knows the credentials of two tenants' processes, as a node does.
func identify(_ context.Context, credential string) (string, error) {
	return map[string]string{"key of tea": "tenant:tea", "key of coffee": "tenant:coffee", "key of the node": "node:models"}[credential], nil
}

const secret = "tea's secret"

// teaProcess is the process of tenant tea.
type teaProcess struct{ peer.Handler }

func (teaProcess) ReadFile(context.Context, string) ([]byte, error) { return []byte(secret), nil }

// serveTenant runs a process that offers the service of tea's process on a node.
func serveTenant(t *testing.T, m *member, node outboard.NodeID, credential string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- peer.Serve(ctx, func() {}, peer.Options{Tenant: "tea", Node: node, Socket: m.socket, Credential: credential, Log: slog.New(slog.DiscardHandler)}, teaProcess{})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return done
}

// readSecret reads a file of tea's process on dinghy as a plain gRPC client does.
func readSecret(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	var f peer.File
	err := conn.Invoke(ctx, "/outboard.tenant.tea.dinghy/ReadFile", &peer.FileRequest{Digest: "x"}, &f)
	return string(f.GetContent()), err
}

// Issue 11, attack 1: local users of a node call the process of a tenant through the port for
// plain gRPC and through the node's socket, on the process's node and on another one.
func TestStrangersCannotCallTenants(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	serveTenant(t, dinghy, "dinghy", "key of tea")
	harbour.endpoints(t, 1)
	dinghy.endpoints(t, 1)
	for name, m := range map[string]*member{"same node": dinghy, "another node": harbour} {
		t.Run(name, func(t *testing.T) {
			tea, err := peer.Dial("tea", m.socket, "key of tea", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer tea.Close()
			m.eventually(t, "the tenant's own process is answered", func() bool {
				content, err := tea.ReadFile(t.Context(), "dinghy", "x")
				return err == nil && string(content) == secret
			})
			for attack, conn := range map[string]grpc.ClientConnInterface{"plain gRPC": m.dialPlain(t), "socket": m.dial(t)} {
				for shown, credentials := range map[string][]string{
					"no credential": nil, "a forged one": {"key of nobody"}, "another tenant's": {"key of coffee"},
					"two": {"key of tea", "key of tea"}, "a long one": {strings.Repeat("k", 1000)},
				} {
					md := metadata.MD{}
					md.Append(offer.CredentialKey, credentials...)
					ctx := metadata.NewOutgoingContext(t.Context(), md)
					got, err := readSecret(ctx, conn)
					if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unauthenticated || got != "" {
						t.Errorf("%s with %s: got %q, %v", attack, shown, got, err)
					}
				}
			}
			// A tenant's credential counts for nothing at the port for plain gRPC.
			ctx := metadata.AppendToOutgoingContext(t.Context(), offer.CredentialKey, "key of tea")
			if got, err := readSecret(ctx, m.dialPlain(t)); status.Code(err) != codes.Unauthenticated {
				t.Errorf("plain gRPC with the tenant's own credential: got %q, %v", got, err)
			}
		})
	}
}

// A program that offers the service of a tenant's process would get what is meant for that.
func TestStrangersCannotImpersonateTenants(t *testing.T) {
	p := newPool(t)
	harbour := p.member("harbour")
	for name, test := range map[string]struct {
		node       outboard.NodeID
		credential string
	}{
		"no credential":    {"harbour", ""},
		"another tenant's": {"harbour", "key of coffee"},
		"another node's":   {"dinghy", "key of tea"},
	} {
		if err := <-serveTenant(t, harbour, test.node, test.credential); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := harbour.registry.Endpoints(); len(all) != 0 {
		t.Errorf("offered: %v", all)
	}
}

// offerShop offers a service, whose calls the program that offers it receives.
func offerShop(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx = metadata.AppendToOutgoingContext(ctx, offer.ServiceKey, "shop.v1.Orders")
	return conn.Invoke(ctx, offer.Method, &descriptorpb.FileDescriptorSet{}, &emptypb.Empty{})
}

// A guest that has taken over the process of its tenant, and a kernel or a rank, connect to the socket
// for programs as the node's user: the former has to prove its identity and offers nothing, the
// latter are refused.
func TestForeignCodeAtTheSocketOfPrograms(t *testing.T) {
	p := newPool(t)
	var admission atomic.Value
	admission.Store(calls.AdmitProgram)
	p.admit = func(_ context.Context, pid int) (calls.Admission, error) {
		if pid != os.Getpid() {
			t.Errorf("asked for process %d", pid)
		}
		return admission.Load().(calls.Admission), nil
	}
	harbour := p.member("harbour")
	harbour.serve(t, callerEcho{})
	harbour.endpoints(t, 1)
	waitServed(t, testgrpc.NewTestServiceClient(harbour.dial(t)))
	for _, test := range []struct {
		admission   calls.Admission
		credential  string
		call, offer codes.Code
	}{
		{calls.AdmitProgram, "key of tea", codes.OK, codes.PermissionDenied},
		{calls.AdmitTenant("tea"), "", codes.Unauthenticated, codes.Unauthenticated},
		{calls.AdmitTenant("tea"), "key of the node", codes.Unauthenticated, codes.Unauthenticated},
		{calls.AdmitTenant("tea"), "key of coffee", codes.Unauthenticated, codes.Unauthenticated},
		{calls.AdmitTenant("tea"), "key of tea", codes.OK, codes.PermissionDenied},
		{calls.Refuse, "", codes.Unavailable, codes.Unavailable},
		{calls.Refuse, "key of tea", codes.Unavailable, codes.Unavailable},
	} {
		admission.Store(test.admission)
		conn, ctx := harbour.dial(t), t.Context()
		if test.credential != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, offer.CredentialKey, test.credential)
		}
		_, err := testgrpc.NewTestServiceClient(conn).EmptyCall(ctx, &testgrpc.Empty{})
		if status.Code(err) != test.call {
			t.Errorf("%s with %q: a call ends with %v, want %v", test.admission, test.credential, err, test.call)
		}
		if err := offerShop(ctx, conn); status.Code(err) != test.offer {
			t.Errorf("%s with %q: an offer ends with %v, want %v", test.admission, test.credential, err, test.offer)
		}
	}
}

// The connections of a tenant are bounded, and those of others are not affected.
func TestConnectionsOfTenantsAreBounded(t *testing.T) {
	p := newPool(t)
	var admission atomic.Value
	p.admit = func(context.Context, int) (calls.Admission, error) { return admission.Load().(calls.Admission), nil }
	harbour := p.member("harbour")
	admission.Store(calls.AdmitProgram)
	harbour.serve(t, callerEcho{})
	harbour.endpoints(t, 1)
	call := func(credential string, opts ...grpc.CallOption) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), offer.CredentialKey, credential)
		_, err := testgrpc.NewTestServiceClient(harbour.dial(t)).EmptyCall(ctx, &testgrpc.Empty{}, opts...)
		return err
	}
	admission.Store(calls.AdmitTenant("tea"))
	for n := range 64 {
		// The first call may precede the router's knowledge of the endpoint.
		if err := call("key of tea", grpc.WaitForReady(n == 0)); err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
	}
	if err := call("key of tea"); status.Code(err) != codes.Unavailable {
		t.Errorf("a further connection: %v", err)
	}
	admission.Store(calls.AdmitTenant("coffee"))
	if err := call("key of coffee"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// callerEcho answers with the identity of its caller.
type callerEcho struct {
	testgrpc.UnimplementedTestServiceServer
}

func (callerEcho) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, nil
}

func (callerEcho) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	c, _ := fabric.CallerFromContext(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	return &testgrpc.SimpleResponse{Username: c.Tenant, OauthScope: strings.Join(md.Get(offer.CredentialKey), " ")}, nil
}

// A callee learns who calls, the same on every path, and not the caller's credential.
func TestCallerIdentity(t *testing.T) {
	p := newPool(t)
	harbour, dinghy := p.member("harbour"), p.member("dinghy")
	harbour.serve(t, callerEcho{})
	harbour.endpoints(t, 1)
	dinghy.endpoints(t, 1)
	for name, m := range map[string]*member{"same node": harbour, "another node": dinghy} {
		for path, test := range map[string]struct {
			conn       grpc.ClientConnInterface
			credential string
			want       string
		}{
			"plain gRPC":         {m.dialPlain(t), "", ""},
			"socket":             {m.dial(t), "", uid()},
			"socket, credential": {m.dial(t), "key of tea", "tenant:tea"},
		} {
			c := testgrpc.NewTestServiceClient(test.conn)
			waitServed(t, c)
			ctx := t.Context()
			if test.credential != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, offer.CredentialKey, test.credential)
			}
			for range 3 { // the first call defines the method's number, others use it
				got, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{})
				if err != nil || got.GetUsername() != test.want || got.GetOauthScope() != "" {
					t.Errorf("%s, %s: got %q, %q, %v, want %q", name, path, got.GetUsername(), got.GetOauthScope(), err, test.want)
				}
			}
		}
	}
}

// A policy can name identities.
func TestPolicyOfIdentities(t *testing.T) {
	p := newPool(t)
	harbour := p.member("harbour")
	harbour.serve(t, callerEcho{})
	harbour.endpoints(t, 1)
	tea, stranger := testgrpc.NewTestServiceClient(harbour.dial(t)), testgrpc.NewTestServiceClient(harbour.dialPlain(t))
	waitServed(t, stranger)
	const text = "policies:\n- name: tea only\n  services: [grpc.testing.TestService]\n  access: {default: deny, rules: [{allow: {tenants: ['tenant:tea']}}]}\n"
	if _, err := harbour.registry.Apply(t.Context(), "p.yaml", text); err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), offer.CredentialKey, "key of tea")
	harbour.eventually(t, "strangers are refused", func() bool {
		_, err := stranger.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
		return status.Code(err) == codes.PermissionDenied
	})
	if _, err := tea.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err != nil {
		t.Errorf("the tenant that the policy names: %v", err)
	}
	if _, err := tea.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("without its credential: %v", err)
	}
}

func uid() string { return fmt.Sprintf("uid:%d", os.Getuid()) }

// No outside port reaches a reserved service, whether or not somebody offers it: not that for plain
// gRPC, and not the node's socket without the identity that owns it.
func TestReservedServicesFromOutside(t *testing.T) {
	p := newPool(t)
	m := p.member("harbour")
	for _, service := range []string{"outboard.models.harbour", "outboard.models.", "outboard.tenant.tea.harbour", "outboard.tenant.", "outboard.anything", "outboard."} {
		for port, conn := range map[string]grpc.ClientConnInterface{"plain gRPC": m.dialPlain(t), "socket": m.dial(t)} {
			for credential, want := range map[string]codes.Code{"": codes.PermissionDenied, "key of coffee": codes.PermissionDenied} {
				ctx := t.Context()
				if credential != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, offer.CredentialKey, credential)
					if port == "plain gRPC" {
						want = codes.Unauthenticated // credentials count for nothing there
					}
				}
				err := conn.Invoke(ctx, "/"+service+"/Anything", &testgrpc.Empty{}, &testgrpc.Empty{})
				if status.Code(err) != want {
					t.Errorf("%s by %s with %q: %v, want %v", service, port, credential, err, want)
				}
			}
		}
	}
}
