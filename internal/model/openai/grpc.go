package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ServiceName is the name of the service that answers chats over gRPC and the fabric. Its method
// StreamMethod takes a BytesValue with the JSON of a ChatCall, and returns a stream of BytesValue,
// each with the JSON of a chat.completion.chunk.
const (
	ServiceName  = "inference.ChatCompletions"
	StreamMethod = "Stream"
)

// A ChatCall is a request of the service. Model is the model that answers; the field "model" of
// Request, which is the JSON of chat/completions, is ignored.
type ChatCall struct {
	Model   string          `json:"model"`
	Request json.RawMessage `json:"request"`
}

// RegisterGRPC registers the service with a gRPC server or a server of the fabric, whose
// interceptors admit the callers. Options.Models get the contexts of the calls.
func (s *Server) RegisterGRPC(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName, HandlerType: (*any)(nil), Metadata: describeService(),
		Streams: []grpc.StreamDesc{{StreamName: StreamMethod, ServerStreams: true, Handler: s.serveStream}},
	}, s)
}

// describeService registers the service's descriptor, which reflection and policies on fields need,
// and returns the name of its file, "" if it could not be registered.
//
//nolint:gochecknoglobals // registered once
var describeService = sync.OnceValue(func() string {
	const name = "outboard/chat_completions.proto"
	value := wrapperspb.File_google_protobuf_wrappers_proto
	message := new(".google.protobuf.BytesValue")
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new(name), Syntax: new("proto3"), Package: new("inference"), Dependency: []string{value.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name:   new(strings.TrimPrefix(ServiceName, "inference.")),
			Method: []*descriptorpb.MethodDescriptorProto{{Name: new(StreamMethod), InputType: message, OutputType: message, ServerStreaming: new(true)}},
		}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		return "" // the service works without a descriptor
	}
	return name
})

// serveStream answers a call of the service.
func (s *Server) serveStream(_ any, stream grpc.ServerStream) error {
	var q wrapperspb.BytesValue
	if err := stream.RecvMsg(&q); err != nil {
		return err
	}
	err := s.streamCall(stream.Context(), q.GetValue(), func(v any) error {
		chunk, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return stream.SendMsg(wrapperspb.Bytes(chunk))
	})
	if err != nil && stream.Context().Err() != nil {
		return status.FromContextError(stream.Context().Err()).Err()
	}
	return statusOf(err)
}

// streamCall answers a ChatCall by passing the chunks to send.
func (s *Server) streamCall(ctx context.Context, encoded []byte, send func(any) error) error {
	q, err := parseCall(encoded)
	if err != nil {
		return err
	}
	j, err := s.prepareChat(ctx, q)
	if err != nil {
		return err
	}
	defer j.release()
	return j.sendChunks(ctx, q, send)
}

// parseCall decodes a ChatCall.
func parseCall(encoded []byte) (*chatRequest, error) {
	var c ChatCall
	var q chatRequest
	if len(encoded) > maxBody {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Message: "the request is larger than 16 MiB"}
	}
	if err := json.Unmarshal(encoded, &c); err != nil {
		return nil, invalid("", "the call is no JSON: "+err.Error())
	}
	if err := decodeMembers(bytes.NewReader(c.Request), &q); err != nil {
		return nil, invalid("", "the request is not as chat/completions has it: "+err.Error())
	}
	q.Model, q.Stream = c.Model, true
	return &q, nil
}

// statusCodes are the gRPC codes for HTTP statuses; all others are INTERNAL.
//
//nolint:gochecknoglobals // a table
var statusCodes = map[int]codes.Code{
	http.StatusBadRequest: codes.InvalidArgument, http.StatusRequestEntityTooLarge: codes.InvalidArgument,
	http.StatusUnauthorized: codes.PermissionDenied, http.StatusNotFound: codes.NotFound,
	http.StatusTooManyRequests: codes.ResourceExhausted, http.StatusServiceUnavailable: codes.Unavailable,
}

// statusOf converts an error to a gRPC status.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	e := toAPIError(err)
	code, ok := statusCodes[e.status]
	if !ok {
		code = codes.Internal
	}
	return status.Error(code, e.Message)
}
