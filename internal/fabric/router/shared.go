package router

import (
	"bytes"
	"io"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// A sharedMessage is a reference-counted message that several attempts send. The original is
// freed with the last reference.
type sharedMessage struct {
	message call.Message
	holders atomic.Int32
}

func newSharedMessage(m *call.Message) *sharedMessage {
	c := &sharedMessage{message: *m}
	c.holders.Store(1)
	return c
}

// acquire returns a reference to be sent.
func (c *sharedMessage) acquire() *call.Message {
	c.holders.Add(1)
	m := c.message
	m.Release = c.release
	return &m
}

// release drops a reference.
func (c *sharedMessage) release() {
	if c.holders.Add(-1) == 0 {
		c.message.Free()
	}
}

// cloneMessage copies a message into memory of its own.
func cloneMessage(m *call.Message) (*call.Message, error) {
	data, err := m.Bytes()
	if err != nil {
		return nil, err
	}
	return &call.Message{Data: slices.Clone(data), Compressed: m.Compressed}, nil
}

// maxDecompressed bounds the size of a compressed request that is decompressed for a policy.
const maxDecompressed = 64 << 20

func decompress(name string, data []byte) ([]byte, error) {
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "router: a policy needs the request, and its encoding %q is not known", name)
	}
	r, err := c.Decompress(bytes.NewReader(data))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "router: decompress the request: %v", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxDecompressed+1))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "router: decompress the request: %v", err)
	}
	if len(out) > maxDecompressed {
		return nil, status.Error(codes.ResourceExhausted, "router: the request is too large, decompressed")
	}
	return out, nil
}
