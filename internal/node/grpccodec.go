package node

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// A passingMessage is a message of a stream, which does not count once it is decoded.
type passingMessage struct{ message any }

// A countingCodec counts messages for their calls before it decodes them.
type countingCodec struct{ decompressor *inflate.Decompressor }

// Name implements encoding.CodecV2. It is empty, so that the head determines the content type.
func (countingCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	wire, size := grpcconn.TakeInflated(c.decompressor, data), int64(data.Len())
	m, ok := v.(*grpcconn.Message)
	if !ok {
		return encoding.GetCodecV2("proto").Unmarshal(data, v)
	}
	if !m.Deliver(wire, size) {
		return nil
	}
	into := m.Into
	if passing, ok := into.(passingMessage); ok {
		defer m.Free(size)
		into = passing.message
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, into)
}
