package node

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"sync"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/model/oip"
)

// streamPath is the path of the models' only call whose client sends a stream of messages.
const streamPath = "/" + oip.ServiceName + "/ModelStreamInfer"

// messageHead is the size of the head of a gRPC message: a flag, and the length in 4 bytes.
const messageHead = 5

// A messageBody is the body of a gRPC call whose client sends a stream. It passes one message for
// each that the call asks for: gRPC's server reads the body of an HTTP request as fast as it arrives, and
// would hold any number of messages that the call has not asked for. Until the call asks for the next
// message, the bytes of the last one are counted for the client.
type messageBody struct {
	*countedBody
	idle   io.Reader // the body, for a client that has no message to send
	wanted chan struct{}
	closed chan struct{}
	once   sync.Once

	// The reader's position in a message.
	head [messageHead]byte
	have int    // bytes of head; 0: between two messages
	left uint32 // bytes of the message that are still to come
}

// limitMessages replaces the body of a request by a messageBody, which its call finds in its context.
func (b *modelBodies) limitMessages(r *http.Request, client string) (*http.Request, *messageBody) {
	m := &messageBody{
		countedBody: &countedBody{ReadCloser: r.Body, all: b, client: client}, idle: r.Body, wanted: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	if bounded, ok := r.Body.(*gateway.BoundedBody); ok {
		m.idle = bounded.Unbounded()
	}
	r = r.WithContext(context.WithValue(r.Context(), messageBodyKey{}, m))
	r.Body = m
	return r, m
}

// Read implements io.Reader. It waits between two messages until the call asks for the next one.
func (m *messageBody) Read(p []byte) (n int, err error) {
	if m.have == 0 {
		select {
		case <-m.wanted:
		case <-m.closed:
			return 0, io.ErrClosedPipe
		}
		n, err = m.idle.Read(p[:min(messageHead, len(p))])
	} else {
		n, err = m.countedBody.Read(p[:min(len(p), m.due())])
	}
	m.advance(p[:n])
	return n, err
}

// due returns how many bytes of the message, or of its head, are still to come.
func (m *messageBody) due() int {
	if m.have < messageHead {
		return messageHead - m.have
	}
	return int(m.left)
}

func (m *messageBody) advance(p []byte) {
	if m.have < messageHead {
		if m.have += copy(m.head[m.have:], p); m.have == messageHead {
			m.left = binary.BigEndian.Uint32(m.head[1:])
		}
	} else {
		m.left -= uint32(len(p))
	}
	if m.have == messageHead && m.left == 0 {
		m.have = 0
	}
}

// want lets one more message pass. The last one is no longer held as bytes.
func (m *messageBody) want() {
	m.mu.Lock()
	m.restart()
	m.mu.Unlock()
	select {
	case m.wanted <- struct{}{}:
	default: // the last one that was wanted has not come yet
	}
}

// Close implements io.Closer. It ends a read that waits.
func (m *messageBody) Close() error {
	m.once.Do(func() { close(m.closed) })
	m.release()
	return m.countedBody.Close()
}

type messageBodyKey struct{}

// receiveSingly is an interceptor: it has a call's messageBody pass one message for each that the
// call receives.
func receiveSingly(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if m, ok := stream.Context().Value(messageBodyKey{}).(*messageBody); ok {
		stream = singleMessages{stream, m}
	}
	return next(srv, stream)
}

// singleMessages is a stream whose messages pass one at a time.
type singleMessages struct {
	grpc.ServerStream
	body *messageBody
}

// RecvMsg implements grpc.ServerStream.
func (s singleMessages) RecvMsg(m any) error {
	s.body.want()
	return s.ServerStream.RecvMsg(m)
}
