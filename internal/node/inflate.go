package node

import (
	"compress/gzip"
	"errors"
	"io"
	"sync"
	"unsafe"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/outboard-run/outboard"
)

// inflating is the client for which messages are counted while they are decompressed: grpc-go
// decompresses a message without telling of which call.
const inflating = "(decompression)"

// An inflater decompresses the messages of gRPC for models, and reserves memory as they grow:
// 256 KiB may decompress to 256 MiB.
type inflater struct {
	bodies *modelBodies

	mu    sync.Mutex
	sizes map[*byte]int64 // reserved for messages that no call has taken over
}

func newInflater(bodies *modelBodies) *inflater {
	return &inflater{bodies: bodies, sizes: map[*byte]int64{}}
}

// Type implements grpc.Decompressor.
func (*inflater) Type() string { return "gzip" }

// Do implements grpc.Decompressor.
func (f *inflater) Do(r io.Reader) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	m := inflated{bodies: f.bodies}
	if err := m.readFrom(z); err != nil {
		f.bodies.release(inflating, int64(cap(m.data)))
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes[unsafe.SliceData(m.data)] = int64(cap(m.data))
	return m.data, nil
}

// take ends the reservation of a message that is being decoded, and reports whether it was
// compressed.
func (f *inflater) take(data []byte) bool {
	at := unsafe.SliceData(data)
	f.mu.Lock()
	size, ok := f.sizes[at]
	delete(f.sizes, at)
	f.mu.Unlock()
	if ok {
		f.bodies.release(inflating, size)
	}
	return ok
}

// inflated is a message that grows while it is decompressed. Its capacity is reserved.
type inflated struct {
	bodies *modelBodies
	data   []byte
}

func (m *inflated) readFrom(r io.Reader) error {
	for {
		if len(m.data) == cap(m.data) {
			if err := m.grow(); err != nil {
				return err
			}
		}
		n, err := r.Read(m.data[len(m.data):cap(m.data)])
		m.data = m.data[:len(m.data)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow doubles the capacity, up to a byte more than a message may have, for which grpc-go refuses it.
func (m *inflated) grow() error {
	size := min(max(freeBody, 2*cap(m.data)), maxModelMessage+1)
	if size <= cap(m.data) {
		return outboard.Errorf(outboard.Exhausted, "", "the message has more than %v when it is decompressed", outboard.Bytes(maxModelMessage))
	}
	if err := m.bodies.reserve(inflating, int64(size)); err != nil {
		return err
	}
	old := m.data
	m.data = append(make([]byte, 0, size), old...)
	m.bodies.release(inflating, int64(cap(old)))
	return nil
}

// A countedMessage is a message that is received for a call.
type countedMessage struct {
	call    *grpcCall
	message any
}

// A countingCodec counts messages that were compressed for their call before it decodes them.
type countingCodec struct{ inflater *inflater }

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
	compressed := c.inflater.take(buffer.ReadOnlyData())
	if m, ok := v.(*countedMessage); ok {
		if v = m.message; compressed && !m.call.inflate(int64(buffer.Len())) {
			return nil // grpc-go would end the call with codes.Internal
		}
	}
	return encoding.GetCodecV2("proto").Unmarshal(mem.BufferSlice{buffer}, v)
}
