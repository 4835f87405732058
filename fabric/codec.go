package fabric

import (
	"fmt"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// grpcProto is the import path of grpc-go's own codec for protocol buffers.
const grpcProto = "google.golang.org/grpc/encoding/proto"

// codecFor returns the registered codec of that name, nil if there is none. As in grpc-go, codecs
// of the second version come first.
func codecFor(subtype string) encoding.CodecV2 {
	if subtype == "" {
		subtype = protocodec.Name
	}
	if c := encoding.GetCodecV2(subtype); c != nil {
		return c
	}
	if c := encoding.GetCodec(subtype); c != nil {
		return codecV1{c}
	}
	return nil
}

// isProto reports whether c is grpc-go's codec of protocol buffers, so that this package may
// encode and decode in its place.
func isProto(c encoding.CodecV2) bool {
	t := reflect.TypeOf(c)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == grpcProto
}

// codecV1 adapts a codec of the first version to the second.
type codecV1 struct{ encoding.Codec }

func (c codecV1) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.Codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (c codecV1) Unmarshal(data mem.BufferSlice, v any) error {
	return c.Codec.Unmarshal(data.Materialize(), v)
}

// codecV0 adapts a grpc.Codec, which returns its name by String.
type codecV0 struct{ grpc.Codec }

func (c codecV0) Name() string { return c.String() }

// protoOf returns v as a message of protocol buffers, nil if v is none.
func protoOf(v any) proto.Message {
	switch m := v.(type) {
	case proto.Message:
		return m
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m)
	}
	return nil
}

// encodeProto is the Encode of messages that are passed by value.
func encodeProto(v any) ([]byte, error) { return proto.Marshal(protoOf(v)) }

// errNoMessage returns the error of grpc-go's codec for a v that is no message.
func errNoMessage(v any) error {
	return fmt.Errorf("proto: failed to marshal, message is %T, want proto.Message", v)
}
