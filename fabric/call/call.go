// Package call is the vocabulary of calls: what transports carry, policies judge
// and balancers place. It does nothing.
//
// A call is a [Head], then messages each way, then an end: a gRPC status and a
// trailer. [Transport] is the caller's side of a way to a peer, [Handler] the
// callee's. Whatever stands between them (policies, balancers, the node) is a
// Handler in front of a Transport.
package call

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
)

// A Head describes a call before its first message. Its receiver does not change
// it; a change needs a [Head.Clone].
type Head struct {
	// Method is "/package.Service/Method".
	Method string
	// Metadata has lower-case keys; values of keys that end in "-bin" are raw bytes.
	Metadata metadata.MD
	// Tenant and Peer identify the caller. They come from the channel (its certificate
	// or the socket's credentials), never from what the caller writes.
	Tenant, Peer string
	// Deadline is when the caller gives up; zero: never.
	Deadline time.Time
	// Encoding is the compression of the messages that say Compressed, "" for none.
	Encoding string
	// Subtype is the codec's name as in content-type application/grpc+SUBTYPE, "" for proto.
	Subtype  string
	Priority Priority
	// Streaming says that there may be more than one message one way or the other.
	Streaming bool
	// WaitForReady says that the call waits for an endpoint rather than fail while there is
	// none, as grpc.WaitForReady does.
	WaitForReady bool
	// Attempt counts retries, from 0.
	Attempt int
}

// Priority orders what waits for the same connection.
type Priority int8

// The priorities. The zero value is Normal.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// Service is the part of Method that names the service.
func (h *Head) Service() string {
	service, _, _ := strings.Cut(strings.TrimPrefix(h.Method, "/"), "/")
	return service
}

// Name is the last part of Method.
func (h *Head) Name() string { return h.Method[strings.LastIndexByte(h.Method, '/')+1:] }

// Clone is a copy whose fields may be changed; its metadata is shared.
func (h *Head) Clone() *Head {
	c := *h
	return &c
}

// A Message is one message of a call. Sending transfers its ownership: its receiver calls Free
// once, and Data must not be read after that.
type Message struct {
	// Data is the encoded message. It may lie in memory that its sender can still
	// write: what is parsed with trust is copied first.
	Data []byte
	// Compressed says that Data is compressed with the head's Encoding.
	Compressed bool
	// Value is the decoded message, where both sides share a process; then Data
	// may be nil until Encode is called.
	Value any
	// Encode makes Data from Value.
	Encode func(value any) ([]byte, error)
	// Release gives Data's memory back; nil where there is nothing to do.
	Release func()
}

// Free gives the message's memory back. It may be called on nil.
func (m *Message) Free() {
	if m != nil && m.Release != nil {
		m.Release()
		m.Release = nil
	}
}

// Bytes is the encoded message, made from Value when there is none yet.
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
	// Open begins a call. It does not wait for the peer. ctx is the call's: when
	// it ends the call ends, for the callee too.
	Open(ctx context.Context, h *Head) (ClientStream, error)
	// Close ends every call with codes.Unavailable. It may be called twice.
	Close() error
}

// Unary is what a Transport has that knows a shorter way for calls of one message
// each way.
type Unary interface {
	// Unary takes request over, and the caller frees the response. A call that ended
	// with another status than OK returns that as an error of package status. Where the
	// error has a method Unsent() bool that returns true, the peer never saw the call
	// and request remains the caller's: it can be sent on another transport.
	Unary(ctx context.Context, h *Head, request *Message) (response *Message, end End, err error)
}

// An End is what comes with a call's end besides its status.
type End struct{ Header, Trailer metadata.MD }

// ClientStream is the caller's side of a call. One goroutine may send while
// another receives.
type ClientStream interface {
	// Send takes m over. io.EOF says that the call has ended: Recv tells how.
	Send(m *Message) error
	CloseSend() error
	// Header waits for the callee's first words.
	Header() (metadata.MD, error)
	// Recv returns io.EOF after the last message of a call that ended with OK, else
	// an error of package status.
	Recv() (*Message, error)
	// Trailer is known once Recv has returned an error.
	Trailer() metadata.MD
}

// ServerStream is the callee's side of a call. One goroutine may send while
// another receives.
type ServerStream interface {
	// Context ends with the call: cancelled, past its deadline, or its caller gone.
	Context() context.Context
	Head() *Head
	// Recv returns io.EOF after the caller's last message.
	Recv() (*Message, error)
	SendHeader(metadata.MD) error
	Send(m *Message) error
	SetTrailer(metadata.MD)
}

// A Handler serves calls. What it returns is the call's status: nil is OK, an
// error of package status is itself, a context's error is Canceled or
// DeadlineExceeded, anything else is Unknown.
type Handler interface {
	Serve(s ServerStream) error
}

// UnaryHandler is what a Handler has that serves calls of one message each way
// without a stream. It must not block for longer than its work takes.
type UnaryHandler interface {
	// ServeUnary takes request over; the transport frees the response.
	ServeUnary(ctx context.Context, h *Head, request *Message) (response *Message, end End, err error)
}
