package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/coder/websocket"
)

// The memory of compressed messages of WebSockets (permessage-deflate, RFC 7692), in bytes.
const (
	// compressFrom is the size from which a message is compressed.
	compressFrom = 512
	// deflateState is what compressing a message takes, beside the copy that waits for the client,
	// and inflateState what reading one takes until it is complete.
	deflateState = 1200 << 10
	inflateState = 48 << 10
	// compressionBytes bounds the memory of all messages that are compressed or wait, compressed, for
	// their clients. The members of a room share a message, but not its compressed copies.
	compressionBytes = 128 << 20
)

// isCompressed reports whether the response to a handshake agrees to compression.
func isCompressed(response http.Header) bool {
	return response.Get("Sec-WebSocket-Extensions") != "" // the only one that the gateway has
}

// sendMessage sends a message to the client: uncompressed if compressed messages hold too much
// memory, since the client may take as long as writeLimit to read it.
func (s *socket) sendMessage(ctx context.Context, kind websocket.MessageType, data []byte) error {
	if !s.compressed || len(data) < compressFrom {
		return s.conn.Write(ctx, kind, data)
	}
	held, budget := int64(len(data)+deflateState), s.handler.gateway.sockets.compressing
	if budget.TryReserve(held) != nil {
		return s.sendUncompressed(ctx, kind, data)
	}
	defer budget.Release(held)
	return s.conn.Write(ctx, kind, data)
}

// sendUncompressed sends a message as it is: the library compresses a message only if its first
// frame has compressFrom bytes or more.
func (s *socket) sendUncompressed(ctx context.Context, kind websocket.MessageType, data []byte) error {
	w, err := s.conn.Writer(ctx, kind)
	if err != nil {
		return err
	}
	first := data[:compressFrom-1]
	if _, err = w.Write(first); err == nil {
		_, err = w.Write(data[len(first):])
	}
	return errors.Join(err, w.Close())
}
