package plain

import (
	"bytes"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // for this package's own services
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// rawCodec passes the message of a *call.Message or an *outgoingRequest unchanged. It encodes the
// messages of reflection and health checks, which this package serves, with the codec for protocol
// buffers.
type rawCodec struct{ pool *bufferPool }

// Name implements encoding.CodecV2. It is empty, so the head determines the content type.
func (rawCodec) Name() string { return "" }

// An outgoingRequest is the request of a unary call. grpc-go encodes it once the call has a connection:
// a call that ends before has not been sent.
type outgoingRequest struct {
	message *call.Message
	encoded bool
}

// Marshal implements encoding.CodecV2. It takes ownership of the message.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*call.Message)
	if r, isRequest := v.(*outgoingRequest); isRequest {
		m, ok, r.encoded = r.message, true, true
	}
	if !ok {
		return encoding.GetCodecV2("proto").Marshal(v)
	}
	data, err := m.Bytes()
	if err != nil {
		m.Free()
		return nil, status.Errorf(codes.Internal, "encode message: %v", err)
	}
	return mem.BufferSlice{lend(m, data)}, nil
}

// lend returns a buffer that frees m with its last reference.
func lend(m *call.Message, data []byte) mem.Buffer {
	if m.Release == nil {
		return mem.SliceBuffer(data)
	}
	if mem.IsBelowBufferPoolingThreshold(cap(data)) {
		// grpc-go does not count the references of small buffers.
		data = bytes.Clone(data)
		m.Free()
		return mem.SliceBuffer(data)
	}
	return mem.NewBuffer(&data, release{m})
}

// release is a buffer pool whose Put frees the message.
type release struct{ m *call.Message }

// Get implements mem.BufferPool. grpc-go does not call it.
func (release) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (r release) Put(*[]byte) { r.m.Free() }

// Unmarshal implements encoding.CodecV2.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*call.Message)
	if !ok {
		return encoding.GetCodecV2("proto").Unmarshal(data, v)
	}
	if len(data) == 0 {
		m.Data = []byte{}
		return nil
	}
	buffer := data.MaterializeToBuffer(c.pool)
	m.Data, m.Release = buffer.ReadOnlyData(), buffer.Free
	return nil
}

// unpack decompresses a compressed message, because grpc-go compresses every message that it
// sends. It frees m unless it returns m.
func unpack(m *call.Message, name string, most int) (*call.Message, error) {
	unpacked, err := decompress(m, name, most)
	if unpacked != m {
		m.Free()
	}
	return unpacked, err
}

// decompress returns m, or a message with the decompressed data of m.
func decompress(m *call.Message, name string, most int) (*call.Message, error) {
	if !m.Compressed {
		return m, nil
	}
	compressor := encoding.GetCompressor(name)
	if compressor == nil {
		return nil, status.Errorf(codes.Unimplemented, "message is compressed with %q, which is not known here", name)
	}
	r, err := compressor.Decompress(bytes.NewReader(m.Data))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "decompress message: %v", err)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "decompress message: %v", err)
	}
	if len(data) > most {
		return nil, status.Errorf(codes.ResourceExhausted, "message is longer than %d bytes when decompressed", most)
	}
	return &call.Message{Data: data}, nil
}
