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

// A copier makes messages of one that may be sent several times. The original is
// freed when they and the copier are.
type copier struct {
	message call.Message
	holders atomic.Int32
}

func copierOf(m *call.Message) *copier {
	c := &copier{message: *m}
	c.holders.Store(1)
	return c
}

// one is a message to be sent.
func (c *copier) one() *call.Message {
	c.holders.Add(1)
	m := c.message
	m.Release = c.free
	return &m
}

// free gives back one's hold.
func (c *copier) free() {
	if c.holders.Add(-1) == 0 {
		c.message.Free()
	}
}

// detached is a copy that lies in memory of its own.
func detached(m *call.Message) (*call.Message, error) {
	data, err := m.Bytes()
	if err != nil {
		return nil, err
	}
	return &call.Message{Data: slices.Clone(data), Compressed: m.Compressed}, nil
}

// mostDecompressed bounds what a compressed request may grow to for a policy.
const mostDecompressed = 64 << 20

func decompress(name string, data []byte) ([]byte, error) {
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "router: a policy needs the request, and its encoding %q is not known", name)
	}
	r, err := c.Decompress(bytes.NewReader(data))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "router: decompress the request: %v", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, mostDecompressed+1))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "router: decompress the request: %v", err)
	}
	if len(out) > mostDecompressed {
		return nil, status.Error(codes.ResourceExhausted, "router: the request is too large, decompressed")
	}
	return out, nil
}
