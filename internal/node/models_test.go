package node_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/outboardtest"
)

// The Open Inference Protocol is served to clients with a key only as soon as the pool has one, and
// a key that names models reaches no other.
func TestModelsNeedTheirKey(t *testing.T) {
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}}}).Node("harbour")
	status, err := n.Client().Status(t.Context())
	if err != nil || status.HTTP == "" {
		t.Fatalf("%+v, %v", status, err)
	}
	get := func(path, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+status.HTTP+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := get("/v2/models/small", ""); got != http.StatusNotFound {
		t.Errorf("without keys: %d", got)
	}
	key, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "site", Models: []string{"small"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, key string
		want      int
	}{
		{"/v2/models/small", "", http.StatusUnauthorized},
		{"/v2/models/small", "obk_000000000000_X", http.StatusUnauthorized},
		{"/v2/models/small", key.Token, http.StatusNotFound},
		{"/v2/models/other", key.Token, http.StatusForbidden},
		{"/v1/models", "", http.StatusUnauthorized},
	} {
		if got := get(c.path, c.key); got != c.want {
			t.Errorf("%s with %q: %d, want %d", c.path, c.key, got, c.want)
		}
	}
}

// Ollama's command looks for its server at the root of its address.
func TestModelsPortIsFoundByOllama(t *testing.T) {
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true, Models: true}}}).Node("harbour")
	nodeStatus, err := n.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/": http.StatusOK, "/other": http.StatusNotFound} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://"+nodeStatus.Models+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("HEAD %s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

// gRPC is served beside HTTP/1.1 on the port for models, behind the same keys.
func TestModelsOverGRPC(t *testing.T) {
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true, Models: true}}}).Node("harbour")
	nodeStatus, err := n.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(nodeStatus.Models, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	describe := func(model, key string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
		return status.Code(conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelMetadata", &inference.ModelMetadataRequest{Name: model}, &inference.ModelMetadataResponse{}))
	}
	if got := describe("small", ""); got != codes.NotFound {
		t.Errorf("without keys: %v", got)
	}
	for _, service := range []string{"", "inference.GRPCInferenceService"} { // a probe names none, or the service
		health, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, health, err)
		}
	}
	streamRequests(t, conn)
	key, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "site", Models: []string{"small"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model, key string
		want       codes.Code
	}{{"small", "", codes.Unauthenticated}, {"small", "obk_000000000000_X", codes.Unauthenticated}, {"small", key.Token, codes.NotFound}, {"other", key.Token, codes.PermissionDenied}} {
		if got := describe(c.model, c.key); got != c.want {
			t.Errorf("%s with %q: %v, want %v", c.model, c.key, got, c.want)
		}
	}
	admin, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "operator", Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]codes.Code{key.Token: codes.PermissionDenied, admin.Token: codes.NotFound} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		err := conn.Invoke(ctx, "/inference.GRPCInferenceService/RepositoryModelUnload", &inference.RepositoryModelUnloadRequest{ModelName: "small"}, &inference.RepositoryModelUnloadResponse{})
		if got := status.Code(err); got != want {
			t.Errorf("unload over gRPC: %v, want %v", err, want)
		}
		for _, verb := range []string{"load", "unload"} {
			if got := post(t, "http://"+nodeStatus.Models+"/v2/repository/models/small/"+verb, token); (got == http.StatusForbidden) != (want == codes.PermissionDenied) {
				t.Errorf("%s over HTTP: %d where gRPC wants %v", verb, got, want)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+nodeStatus.Models+"/v2/models/small", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("HTTP/1.1: %s", response.Status)
	}
}

// A stream of requests ends with its key, and its requests count against the key's limits.
func TestStreamsEndWithTheirKey(t *testing.T) {
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true, Models: true}}}).Node("harbour")
	nodeStatus, err := n.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(nodeStatus.Models, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "site", RequestsPerMinute: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key.Token)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/inference.GRPCInferenceService/ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	request := func() (string, error) {
		var answer inference.ModelStreamInferResponse
		err := errors.Join(stream.SendMsg(&inference.ModelInferRequest{ModelName: "small"}), stream.RecvMsg(&answer))
		return answer.GetErrorMessage(), err
	}
	for i, want := range []string{"there is no model", "there is no model", "2 requests a minute"} {
		if text, err := request(); err != nil || !strings.Contains(text, want) {
			t.Errorf("request %d: %q, %v", i, text, err)
		}
	}
	if _, err := n.Client().RevokeModelKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if text, err := request(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after the key was revoked: %q, %v", text, err)
	}
}

// post posts nothing with a key, and returns the answer's status.
func post(t *testing.T, url, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// streamRequests has a stream of requests answered, each as the client has sent it.
func streamRequests(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(t.Context(), desc, "/inference.GRPCInferenceService/ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"first", strings.Repeat("second", 1<<15), "third"} {
		var answer inference.ModelStreamInferResponse
		if err := errors.Join(stream.SendMsg(&inference.ModelInferRequest{ModelName: "small", Id: id}), stream.RecvMsg(&answer)); err != nil {
			t.Fatal(err)
		}
		if answer.GetErrorMessage() == "" || answer.GetInferResponse().GetId() != id {
			t.Errorf("request %.10q: %.100s", id, &answer)
		}
	}
	if err := errors.Join(stream.CloseSend(), stream.RecvMsg(&inference.ModelStreamInferResponse{})); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}
