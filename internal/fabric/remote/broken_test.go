package remote

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

func resetFrame(stream uint32, kind outboard.Kind) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{2, 0, 0, 5}, stream)
	return binary.LittleEndian.AppendUint16(b, uint16(kind))
}

// TestBrokenCallee has callees that do not follow the protocol, and says what their
// callers make of it.
func TestBrokenCallee(t *testing.T) {
	message := append(appendRecord(nil, recordMessage, 3), "abc"...)
	okay := appendStatus(nil, nil, nil)
	header, _ := appendHeader(nil, metadata.MD{"k": {"v"}})
	cat := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct {
		records       []byte
		reset         outboard.Kind // instead of END, where not Other
		unary, stream codes.Code
	}{
		"in order":               {cat(header, message, okay), 0, codes.OK, codes.OK},
		"no status":              {message, 0, codes.Internal, codes.Internal},
		"nothing":                {nil, 0, codes.Internal, codes.Internal},
		"cut record":             {cat(message, okay[:9]), 0, codes.Internal, codes.Internal},
		"cut head of a record":   {cat(message, okay[:3]), 0, codes.Internal, codes.Internal},
		"unknown record":         {cat(appendRecord(nil, 7, 0), okay), 0, codes.Internal, codes.Internal},
		"header after a message": {cat(message, header, okay), 0, codes.Internal, codes.Internal},
		"two headers":            {cat(header, header, message, okay), 0, codes.Internal, codes.Internal},
		"message too long":       {appendRecord(nil, recordMessage, 1<<20+1), 0, codes.ResourceExhausted, codes.ResourceExhausted},
		"header too long":        {appendRecord(nil, recordHeader, maxHead+1), 0, codes.ResourceExhausted, codes.ResourceExhausted},
		"status of nonsense":     {append(appendRecord(nil, recordStatus, 2), "xx"...), 0, codes.Internal, codes.Internal},
		"two messages":           {cat(message, message, okay), 0, codes.Internal, codes.OK},
		"no message":             {okay, 0, codes.Internal, codes.OK},
		"denied":                 {nil, outboard.Denied, codes.PermissionDenied, codes.PermissionDenied},
		"too many":               {nil, outboard.Exhausted, codes.ResourceExhausted, codes.ResourceExhausted},
		"gone":                   {nil, outboard.Unreachable, codes.Unavailable, codes.Unavailable},
		"a kind of tomorrow":     {nil, 999, codes.Unavailable, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			client := New(framed.Client(a, framed.Options{}), Options{MaxMessage: 1 << 20})
			var calls sync.WaitGroup
			opened, read := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(read)
				discard(b, 2, opened)
			}()
			calls.Go(func() {
				_, _, err := client.Unary(t.Context(), head("Any"), &call.Message{})
				if status.Code(err) != c.unary {
					t.Errorf("unary: %v, want %v", err, c.unary)
				}
			})
			calls.Go(func() {
				s, err := client.Open(t.Context(), head("Any"))
				for err == nil {
					_, err = s.Recv()
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				if status.Code(err) != c.stream {
					t.Errorf("stream: %v, want %v", err, c.stream)
				}
			})
			<-opened
			wire := []byte(greeting)
			for _, id := range []uint32{1, 3} {
				wire = append(wire, frames(id, c.records, 4)...)
				if c.reset != outboard.Other {
					wire = append(wire, resetFrame(id, c.reset)...)
					continue
				}
				wire = append(wire, endFrame(id)...)
			}
			if _, err := b.Write(wire); err != nil {
				t.Error(err)
			}
			calls.Wait() // while the connection lives
			b.Close()
			<-read
			client.Close()
		})
	}
}
