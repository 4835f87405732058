package grpcconn

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// Serve runs the handler of a call that a tap handler has opened. If the server ends the call
// meanwhile, the result is the error for its client.
func Serve(stream grpc.ServerStream, handle func(*Stream) error) error {
	call := callOf(stream.Context())
	if call == nil {
		return status.Error(codes.Internal, "the call did not pass the tap handler")
	}
	err := call.start(stream.Context())
	if err == nil {
		err = handle(&Stream{stream, call})
	}
	if failed := call.finish(); failed != nil && err != nil {
		return failed
	}
	return err
}

// A Stream is a call's stream. It has the connection know for what its handler waits.
type Stream struct {
	grpc.ServerStream
	call *Call
}

// RecvMsg implements grpc.ServerStream. The codec gets a *Message with m.
func (s *Stream) RecvMsg(m any) error {
	s.call.awaitMessage()
	message := &Message{Into: m, call: s.call}
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return message.refused
}

// SendMsg implements grpc.ServerStream.
func (s *Stream) SendMsg(m any) error { return s.SendCounted(m, 0) }

// SendCounted is SendMsg for a message of which n bytes count until it is sent.
func (s *Stream) SendCounted(m any, n int64) error {
	if err := s.call.beginSend(n); err != nil {
		return err
	}
	defer s.call.endSend()
	return s.ServerStream.SendMsg(m)
}

// A Message is a message that a handler receives, as the codec gets it.
type Message struct {
	Into    any // what the handler passed to RecvMsg
	call    *Call
	refused error
}

// Deliver counts the message for its call before the codec decodes it. It took wire bytes while it
// arrived, and held bytes of it count until Free is called. If it returns false the codec drops the
// message and returns no error, since grpc-go would end the call with codes.Internal.
func (m *Message) Deliver(wire, held int64) bool {
	m.refused = m.call.deliver(wire, held)
	return m.refused == nil
}

// Free releases bytes of the message, which the handler no longer has, or counts itself.
func (m *Message) Free(n int64) { m.call.free(n) }

// TakeInflated ends the reservation of a message that was decompressed, and returns how many bytes it
// took while it arrived.
func TakeInflated(d *inflate.Decompressor, data mem.BufferSlice) (wire int64) {
	for _, buffer := range data {
		if compressed, ok := d.Take(buffer.ReadOnlyData()); ok {
			return compressed
		}
	}
	return int64(data.Len())
}
