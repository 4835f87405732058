package node

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// serveFunctions serves models to functions, and returns a connection to their socket and the keys
// of two tenants' processes.
func serveFunctions(t *testing.T) (conn grpc.ClientConnInterface, keys map[string]string) {
	t.Helper()
	broker := &deviceBroker{}
	keys = keysOf(t, broker, "tea", "coffee")
	m := &models{
		node: &Node{folder: &folder{path: t.TempDir()}, identities: identities{models: "key of the node"}},
		log:  slog.New(slog.DiscardHandler), oip: oip.New(oip.Options{}),
		texts: &modelTexts{openai: openai.New(openai.Options{Models: &texttest.Backend{Answer: "Good day"}})},
	}
	m.node.identities.set(broker.tenants)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- m.runFunctions(ctx, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-ready
	dialled, err := fabric.Dial("unix:" + m.node.folder.at(ModelsSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialled.Close() })
	return dialled, keys
}

// The node's models are called without an API key by functions only: neither a program of this
// machine nor a worker that reaches the socket has a tenant's credential.
func TestFunctionsCallModels(t *testing.T) {
	conn, keys := serveFunctions(t)
	for name, c := range map[string]struct {
		credentials []string
		want        codes.Code
	}{
		"a tenant":        {[]string{keys["tea"]}, codes.OK},
		"another tenant":  {[]string{keys["coffee"]}, codes.OK},
		"no credential":   {nil, codes.Unauthenticated},
		"an empty one":    {[]string{""}, codes.Unauthenticated},
		"a forged one":    {[]string{strings.Repeat("k", len(keys["tea"]))}, codes.Unauthenticated},
		"two":             {[]string{keys["tea"], keys["coffee"]}, codes.Unauthenticated},
		"the node's own":  {[]string{"key of the node"}, codes.Unauthenticated},
		"a tenant's name": {[]string{"tea"}, codes.Unauthenticated},
	} {
		md := metadata.MD{}
		md.Append(offer.CredentialKey, c.credentials...)
		ctx := metadata.NewOutgoingContext(t.Context(), md)
		err := conn.Invoke(ctx, "/"+oip.ServiceName+"/ServerLive", &inference.ServerLiveRequest{}, &inference.ServerLiveResponse{})
		if got := status.Code(err); got != c.want {
			t.Errorf("%s: a request for tensors: got %v, want %v", name, got, c.want)
		}
		if got := status.Code(streamChat(ctx, conn)); got != c.want {
			t.Errorf("%s: a request for text: got %v, want %v", name, got, c.want)
		}
	}
}

// streamChat reads an answer to its end.
func streamChat(ctx context.Context, conn grpc.ClientConnInterface) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+openai.ServiceName+"/"+openai.StreamMethod)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(wrapperspb.Bytes([]byte(`{"model":"small","request":{"messages":[{"role":"user","content":"hi"}]}}`))) // RecvMsg has the error
	_ = stream.CloseSend()
	for {
		err := stream.RecvMsg(new(wrapperspb.BytesValue))
		if err == io.EOF { //nolint:errorlint // as grpc-go documents
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Apps need no API key, so they can neither load nor unload models, which others use.
func TestAppsDoNotAdministerModels(t *testing.T) {
	for identity, want := range map[string]outboard.Kind{"tenant:tea": outboard.Denied, "uid:0": outboard.Other} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: fabric.Caller{Tenant: identity}})
		if err := administerModels(ctx); outboard.KindOf(err) != want || (err == nil) != (want == outboard.Other) {
			t.Errorf("%s: %v", identity, err)
		}
	}
}

// The caller of a function's request is its tenant, which the cache of prompts keeps apart.
func TestTenantIsCaller(t *testing.T) {
	broker := &deviceBroker{}
	keys := keysOf(t, broker, "tea")
	m := &models{node: &Node{}}
	m.node.identities.set(broker.tenants)
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: fabric.Caller{Tenant: "uid:0"}})
	ctx, err := m.identifyTenant(metadata.NewIncomingContext(ctx, metadata.Pairs(offer.CredentialKey, keys["tea"])))
	if err != nil || cacheScopeOf(ctx) != "caller/tenant:tea" {
		t.Errorf("got %q, %v", cacheScopeOf(ctx), err)
	}
}

// A process gets a bypass to a model only with the credential of a tenant.
func TestBypassNeedsTenant(t *testing.T) {
	broker := &deviceBroker{}
	keysOf(t, broker, "tea")
	m := &models{node: &Node{identities: identities{models: "key of the node"}}}
	m.node.identities.set(broker.tenants)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			m.serveBypass(t.Context(), conn)
			_ = conn.Close()
		}
	}()
	for name, c := range map[string]struct {
		kind, key string
		want      outboard.Kind
	}{
		"no key":          {worker.TypeBypassRequest, "", outboard.Denied},
		"a forged key":    {worker.TypeBypassRequest, "k", outboard.Denied},
		"the node's key":  {worker.TypeBypassRequest, "key of the node", outboard.Denied},
		"another message": {"hello", "", outboard.Protocol},
	} {
		conn, err := ipc.Dial(t.Context(), path, worker.BypassOptions)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Send(c.kind, worker.BypassRequest{Key: c.key, Model: "m"}); err != nil {
			t.Fatal(err)
		}
		answer, err := conn.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var reason ipc.Reason
		if err := answer.Decode(&reason); err != nil || answer.Type != worker.TypeBypassEnded || reason.Kind != c.want || answer.File() != nil {
			t.Errorf("%s: %q, %+v, %v", name, answer.Type, reason, err)
		}
		_ = conn.Close()
	}
}
