package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// openOutgoing starts a tenant whose operator allows the address of a server, which is returned.
func openOutgoing(t *testing.T) (*bench, string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q,"body":%q,"auth":%q,"upgrade":%q}`, r.URL.Path, body, r.Header.Get("Authorization"), r.Header.Get("Upgrade"))
	}))
	t.Cleanup(s.Close)
	b := openTenant(t)
	b.stop()
	address := s.Listener.Addr().String()
	b.tenant.config.OutgoingPrivate = []string{address}
	b.restart(t)
	return b, address
}

const outgoingManifest = `app: web
outgoing: [{host: "ADDRESS", private: true}, {service: shop.v1.Orders}]
secrets: {token: {env: TOKEN}}
functions:
  good: {module: guest.wasm, imports: [{outgoing: "ADDRESS"}]}
  none: {module: guest.wasm}
workflows: {fetch: fetch.yaml, outer: outer.yaml}
routes: [{path: /outer, workflow: outer, wait: true}]
`

const fetchWorkflow = `document: {dsl: '1.0.3', namespace: web, name: fetch, version: '1.0.0'}
do:
  - get:
      call: http
      with:
        method: post
        endpoint: {uri: 'http://ADDRESS/orders/{id}', authentication: {bearer: {use: token}}}
        body: {n: 1}
`

const outerWorkflow = `document: {dsl: '1.0.3', namespace: web, name: outer, version: '1.0.0'}
do:
  - inner: {run: {workflow: {namespace: web, name: fetch, version: '1.0.0', input: {id: a b}}}}
`

// Workflows and functions send requests to the hosts that the manifest and the operator allow.
func TestOutgoing(t *testing.T) {
	b, address := openOutgoing(t)
	at := strings.NewReplacer("ADDRESS", address).Replace
	files := map[string]string{"fetch.yaml": at(fetchWorkflow), "outer.yaml": outerWorkflow}
	b.mustDeploy(at(outgoingManifest), files)

	const want = `{"auth":"Bearer hush","body":"{\"n\":1}","path":"/orders/a b","upgrade":""}`
	if w := b.request("POST", "/web/outer", "{}"); w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("workflow: status %d, %q", w.Code, w.Body)
	}
	got, err := b.call("web/good", "fetch "+address+" /seats")
	if err != nil || !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(got, `{"path":"/seats","body":"seats","auth":"","upgrade":""}`) {
		t.Errorf("function: %q, %v", got, err)
	}
	for function, target := range map[string]string{"none": address, "good": "other.example.com"} {
		if _, err := b.call("web/"+function, "fetch "+target+" /"); err == nil || !strings.Contains(err.Error(), "outgoing: "+target) {
			t.Errorf("%s: %v", function, err)
		}
	}
	// Without the operator's word the app's is not enough.
	b.tenant.config.OutgoingPrivate = nil
	b.restart(t)
	b.eventually(func() bool { _, err := b.call("web/none", "echo 1"); return err == nil })
	if _, err := b.call("web/good", "fetch "+address+" /"); err == nil || !strings.Contains(err.Error(), "--outgoing-private "+address) {
		t.Errorf("an address that the operator does not allow: %v", err)
	}
}

// What a workflow may not reach is found when the app is deployed.
func TestOutgoingIsCheckedAtDeployment(t *testing.T) {
	b := openTenant(t)
	const head = "document: {dsl: '1.0.3', namespace: web, name: x, version: '1.0.0'}\ndo: [{a: {"
	for name, c := range map[string]struct{ task, want string }{
		"host":     {`call: http, with: {method: get, endpoint: "https://other.example.com/{id}"}`, `outgoing: ["other.example.com"]`},
		"secret":   {`call: http, with: {method: get, endpoint: {uri: "https://a.example.com/", authentication: {basic: {use: none}}}}`, `no secret "none"`},
		"service":  {`call: grpc, with: {method: Get, service: {name: shop.v1.Prices, host: pool}}`, `outgoing: [{service: shop.v1.Prices}]`},
		"workflow": {`run: {workflow: {namespace: web, name: other}}`, "no workflow web/other"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.deploy("app: web\noutgoing: [a.example.com]\nworkflows: {x: x.yaml}\n", map[string]string{"x.yaml": head + c.task + "}}]\n"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// invokeFunc is a connection in Go.
type invokeFunc func(method string, in, out proto.Message) error

// Invoke implements grpc.ClientConnInterface.
func (f invokeFunc) Invoke(_ context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	return f(method, in.(proto.Message), out.(proto.Message)) //nolint:forcetypeassert // They are.
}

// NewStream implements grpc.ClientConnInterface.
func (invokeFunc) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// A workflow calls a service of the pool by the descriptors that its program has published.
func TestCallGRPC(t *testing.T) {
	b := openTenant(t)
	writer, err := services.Open(t.Context(), services.Options{State: b.tenant.state, Self: "harbour", Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	const name = "grpc.testing.TestService"
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range []protoreflect.FileDescriptor{grpc_testing.File_grpc_testing_empty_proto, grpc_testing.File_grpc_testing_messages_proto, grpc_testing.File_grpc_testing_test_proto} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	if err := writer.Describe(t.Context(), name, set); err != nil {
		t.Fatal(err)
	}
	b.tenant.grpc.conn = func() grpc.ClientConnInterface {
		return invokeFunc(func(method string, in, out proto.Message) error {
			text, err := protojson.Marshal(in)
			if err != nil || method != "/"+name+"/UnaryCall" {
				return status.Errorf(codes.Unimplemented, "%s, %v", method, err)
			}
			reply, err := proto.Marshal(&grpc_testing.SimpleResponse{Username: strings.ReplaceAll(string(text), " ", "")})
			if err != nil {
				return err
			}
			return proto.Unmarshal(reply, out)
		})
	}
	call := func(method string, arguments any) (engine.Outcome, error) {
		return b.tenant.grpc.call(t.Context(), engine.ServiceCall{With: map[string]any{"service": name, "method": method, "arguments": arguments}})
	}
	got, err := call("UnaryCall", map[string]any{"responseSize": 7})
	if text := strings.ReplaceAll(string(got.Body), " ", ""); err != nil || text != `{"username":"{\"responseSize\":7}"}` {
		t.Errorf("got %s, %v", got.Body, err)
	}
	for method, want := range map[string]int{"EmptyCall": 501, "StreamingOutputCall": 501, "None": 404} {
		if _, err := call(method, nil); !hasStatus(err, want) {
			t.Errorf("%s: %v, want %d", method, err, want)
		}
	}
	if _, err := call("UnaryCall", map[string]any{"size": "x"}); !hasStatus(err, 400) {
		t.Errorf("wrong arguments: %v", err)
	}
}

func hasStatus(err error, want int) bool {
	e, ok := errors.AsType[*dsl.Error](err)
	return ok && e.Status == want
}

// A service that nobody in the pool has described is reported by its name.
func TestUnknownService(t *testing.T) {
	b := openTenant(t)
	const flow = "document: {dsl: '1.0.3', namespace: web, name: x, version: '1.0.0'}\n" +
		"do: [{a: {call: grpc, with: {method: Get, service: {name: shop.v1.Orders, host: pool}, arguments: {id: 7}}}}]\n"
	b.mustDeploy("app: web\noutgoing: [{service: shop.v1.Orders}]\nworkflows: {x: x.yaml}\n", map[string]string{"x.yaml": flow})
	var e client.Execution
	if err := b.ask("POST", "/v1/apps/web/workflows/x/executions?wait=true", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	if e.Fault == nil || !strings.Contains(e.Fault.Detail, "shop.v1.Orders") {
		t.Errorf("got %+v", e.Fault)
	}
}

func TestGRPCError(t *testing.T) {
	for code, want := range map[codes.Code]int{codes.NotFound: 404, codes.DeadlineExceeded: 408, codes.Unavailable: 503, codes.Internal: 500} {
		if e, ok := grpcError(status.Error(code, "why")).(*dsl.Error); !ok || e.Status != want || e.Detail != "why" { //nolint:errorlint // It is the error itself.
			t.Errorf("%s: %+v, want %d", code, e, want)
		}
	}
}

// Two versions of an app with other allow-lists run at the same time: each has its own.
func TestVersionsKeepTheirAllowLists(t *testing.T) {
	e, err := egress.New(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clients := &outgoingClients{egress: e, app: "web"}
	t.Cleanup(clients.close)
	var callers sync.Map // the hosts of each, which stays: no other one gets its address
	for range 5000 {
		var versions sync.WaitGroup
		for i := range 16 {
			own := []string{"old.example.com", "new.example.com"}[i%2]
			versions.Go(func() {
				if of, _ := callers.LoadOrStore(clients.caller([]egress.Host{{Name: own}}, nil), own); of != own {
					t.Errorf("a call by the version with %s has the allow-list of the one with %s", own, of)
				}
			})
		}
		if versions.Wait(); t.Failed() {
			return
		}
	}
}

// The names of a service's enum are long: a byte of its response is 64 KiB of JSON.
func TestResponsesAreBoundedAsJSON(t *testing.T) {
	long := strings.Repeat("A", 64<<10)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("long.proto"), Syntax: new("proto3"),
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: new("E"), Value: []*descriptorpb.EnumValueDescriptorProto{
			{Name: new(long), Number: proto.Int32(0)},
		}}},
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("M"), Field: []*descriptorpb.FieldDescriptorProto{
			{Name: new("e"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), TypeName: new(".E")},
			{Name: new("m"), Number: proto.Int32(2), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: new(".M")},
		}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(file.Messages().Get(0))
	packed := append([]byte{1<<3 | 2, 100}, make([]byte, 100)...) // 100 values of the enum
	if err := proto.Unmarshal(packed, m); err != nil {
		t.Fatal(err)
	}
	if text, err := encodeResponse(m); err != nil || len(text) < 100*len(long) {
		t.Errorf("100 values: %d bytes, %v", len(text), err)
	}
	nested := append([]byte{2<<3 | 2, 102}, packed...) // a message with these
	var many []byte
	for range 10 {
		many = append(many, nested...)
	}
	if err := proto.Unmarshal(many, m); err != nil {
		t.Fatal(err)
	}
	if text, err := encodeResponse(m); !hasStatus(err, http.StatusInsufficientStorage) {
		t.Errorf("1,000 values in messages: %d bytes, %v", len(text), err)
	}
}
