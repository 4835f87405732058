// Package call is the vocabulary of calls: the types that transports carry, policies judge and
// balancers route. It does nothing.
//
// A call is a [Head], then messages each way, then an end: a gRPC status and a trailer. [Transport]
// is the caller's side of a connection to a peer, [Handler] the callee's. Policies, balancers and
// the node stand between the two: each is a Handler in front of a Transport.
package call

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
)

// A Head describes a call before its first message. Its receiver must not change it, only a copy
// made by [Head.Clone].
type Head struct {
	// Method is "/package.Service/Method".
	Method string
	// Metadata has lower-case keys; values of keys that end in "-bin" are raw bytes.
	Metadata metadata.MD
	// Tenant and Peer identify the caller. They come from the channel (its certificate or the
	// socket's credentials), never from data that the caller writes.
	Tenant, Peer string
	// Deadline is the time at which the caller gives up; zero: never.
	Deadline time.Time
	// Encoding is the compression of the messages marked as Compressed, "" for none.
	Encoding string
	// Subtype is the name of the codec, as in content-type application/grpc+SUBTYPE; "" is proto.
	Subtype  string
	Priority Priority
	// Streaming says that either direction may have more than one message.
	Streaming bool
	// WaitForReady says that the call waits for an endpoint rather than fail while there is none,
	// as with grpc.WaitForReady.
	WaitForReady bool
	// Attempt counts retries, from 0.
	Attempt int
}

// Priority orders the calls that wait for the same connection.
type Priority int8

// The priorities. The zero value is Normal.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// Service returns the part of Method that names the service.
func (h *Head) Service() string {
	service, _, _ := strings.Cut(strings.TrimPrefix(h.Method, "/"), "/")
	return service
}

// Name returns the last part of Method, the method's own name.
func (h *Head) Name() string { return h.Method[strings.LastIndexByte(h.Method, '/')+1:] }

// Clone returns a copy whose fields may be changed; its metadata is shared.
func (h *Head) Clone() *Head {
	c := *h
	return &c
}

// A Message is one message of a call. Sending transfers its ownership: its receiver calls Free
// once, and Data must not be read after that.
type Message struct {
	// Data is the encoded message. It may lie in memory that its sender can still write: copy it
	// before parsing where the result is trusted.
	Data []byte
	// Compressed reports that Data is compressed with the head's Encoding.
	Compressed bool
	// Value is the decoded message if both sides share a process; then Data may be nil until Encode
	// is called.
	Value any
	// Encode encodes Value, for Data.
	Encode func(value any) ([]byte, error)
	// Release gives Data's memory back; nil if there is nothing to release.
	Release func()
}

// Free releases the message's memory. It may be called on nil.
func (m *Message) Free() {
	if m != nil && m.Release != nil {
		m.Release()
		m.Release = nil
	}
}

// Bytes returns the encoded message. It encodes Value if there is no Data yet.
func (m *Message) Bytes() ([]byte, error) {
	if m.Data == nil && m.Value != nil && m.Encode != nil {
		data, err := m.Encode(m.Value)
		if err != nil {
			return nil, err
		}
		m.Data = data
	}
	return m.Data, nil
}

// A Transport opens calls to one peer.
type Transport interface {
	// Open begins a call. It does not wait for the peer. ctx bounds the call: when ctx ends the
	// call ends, for the callee too.
	Open(ctx context.Context, h *Head) (ClientStream, error)
	// Close ends every call with codes.Unavailable. It may be called twice.
	Close() error
}

// Unary is implemented by a Transport that has a faster path for calls of one message each way.
type Unary interface {
	// Unary takes ownership of request, and the caller frees the response. A call that ends with a
	// status other than OK returns it as an error of package status. If the error has a method
	// Unsent() bool that returns true, the peer never saw the call and request still belongs to the
	// caller, who may send it on another transport.
	Unary(ctx context.Context, h *Head, request *Message) (response *Message, end End, err error)
}

// An End is the metadata that accompanies a call's status.
type End struct{ Header, Trailer metadata.MD }

// ClientStream is the caller's side of a call. One goroutine may send while
// another receives.
type ClientStream interface {
	// Send takes ownership of m. io.EOF says that the call has ended: Recv returns its status.
	Send(m *Message) error
	CloseSend() error
	// Header waits for the callee's header.
	Header() (metadata.MD, error)
	// Recv returns io.EOF after the last message of a call that ended with OK, else
	// an error of package status.
	Recv() (*Message, error)
	// Trailer returns the trailer once Recv has returned an error.
	Trailer() metadata.MD
}

// ServerStream is the callee's side of a call. One goroutine may send while
// another receives.
type ServerStream interface {
	// Context returns the call's context. It ends when the call is cancelled or past its deadline,
	// or its caller is gone.
	Context() context.Context
	Head() *Head
	// Recv returns io.EOF after the caller's last message.
	Recv() (*Message, error)
	SendHeader(metadata.MD) error
	Send(m *Message) error
	SetTrailer(metadata.MD)
}

// A Handler serves calls. The call's status follows from the returned error: nil is OK, an error of
// package status is itself, a context's error is Canceled or DeadlineExceeded, any other error is
// Unknown.
type Handler interface {
	Serve(s ServerStream) error
}

// UnaryHandler is implemented by a Handler that serves calls of one message each way without a
// stream. It must not block for longer than its work takes.
type UnaryHandler interface {
	// ServeUnary takes ownership of request; the transport frees the response.
	ServeUnary(ctx context.Context, h *Head, request *Message) (response *Message, end End, err error)
}
