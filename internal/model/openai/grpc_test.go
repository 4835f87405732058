package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

// call returns the chunks of a call of the service.
func call(t *testing.T, b *texttest.Backend, model, request string) (chunks []string, err error) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	openai.New(openai.Options{Models: b}).RegisterGRPC(server)
	go func() { _ = server.Serve(listener) }() // Stop ends it
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return stream(t.Context(), conn, model, request)
}

func stream(ctx context.Context, conn *grpc.ClientConn, model, request string) (chunks []string, err error) {
	encoded, err := json.Marshal(openai.ChatCall{Model: model, Request: json.RawMessage(request)})
	if err != nil {
		return nil, err
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+openai.ServiceName+"/"+openai.StreamMethod)
	if err == nil {
		err = errors.Join(s.SendMsg(wrapperspb.Bytes(encoded)), s.CloseSend())
	}
	for err == nil {
		var chunk wrapperspb.BytesValue
		if err = s.RecvMsg(&chunk); err == nil {
			chunks = append(chunks, string(chunk.GetValue()))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return chunks, err
}

// The service streams the chunks of a chat; the model is the call's, not the request's.
func TestStreamCall(t *testing.T) {
	b := &texttest.Backend{Answer: "Good day"}
	chunks, err := call(t, b, "small", `{"model":"other","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":50,"stream_options":{"include_usage":true}}`)
	if err != nil || len(chunks) != 6 {
		t.Fatalf("%q, %v", chunks, err)
	}
	content := ""
	for _, c := range chunks {
		piece, _ := at(t, []byte(c), "choices", 0, "delta", "content").(string)
		content += piece
	}
	if usage := at(t, []byte(chunks[5]), "usage", "completion_tokens"); content != "Good day" || usage != 3.0 || b.Released != 1 || b.Requests[0].MaxTokens != 50 {
		t.Errorf("content %q, usage %v, released %d times, %+v", content, usage, b.Released, b.Requests)
	}
}

// Reflection and policies find the service's descriptor.
func TestStreamCallIsDescribed(t *testing.T) {
	openai.New(openai.Options{}).RegisterGRPC(grpc.NewServer())
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(openai.ServiceName)
	if err != nil || d.(protoreflect.ServiceDescriptor).Methods().ByName(openai.StreamMethod) == nil {
		t.Errorf("%v, %v", d, err)
	}
}

func TestStreamCallRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		model, request string
		code           codes.Code
		text           string
	}{
		"no such model": {"other", `{"messages":[{"role":"user","content":"hi"}]}`, codes.NotFound, "does not exist"},
		"no messages":   {"small", `{}`, codes.InvalidArgument, "messages"},
		"wrong types":   {"small", `{"messages":7}`, codes.InvalidArgument, "chat/completions"},
	} {
		chunks, err := call(t, &texttest.Backend{Answer: "x"}, c.model, c.request)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) || len(chunks) > 0 {
			t.Errorf("%s: %q, %v", name, chunks, err)
		}
	}
}
