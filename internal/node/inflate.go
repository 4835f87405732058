package node

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// inflating is the client for which messages are counted while they are decompressed: of which call
// they are is not known then.
const inflating = "(decompression)"

// inflatingBodies is the budget of messages that are being decompressed.
type inflatingBodies struct{ bodies *modelBodies }

// Reserve implements inflate.Budget.
func (b inflatingBodies) Reserve(n int64) error { return b.bodies.reserve(inflating, n) }

// Release implements inflate.Budget.
func (b inflatingBodies) Release(n int64) { b.bodies.release(inflating, n) }

// A countedMessage is a message that is received for a call.
type countedMessage struct {
	call    *grpcCall
	message any
}

// A countingCodec counts messages that were compressed for their call before it decodes them.
type countingCodec struct{ decompressor *inflate.Decompressor }

// Name implements encoding.CodecV2. It is empty, so that the head determines the content type.
func (countingCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	compressed := c.decompressor.Take(buffer.ReadOnlyData())
	if m, ok := v.(*countedMessage); ok {
		if v = m.message; compressed && !m.call.inflate(int64(buffer.Len())) {
			return nil // grpc-go would end the call with codes.Internal
		}
	}
	return encoding.GetCodecV2("proto").Unmarshal(mem.BufferSlice{buffer}, v)
}
