package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

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

// extensionsField is the field by which the ends of a WebSocket agree to extensions.
const extensionsField = "Sec-WebSocket-Extensions"

// serverWindow is the only size of the server's window that the library agrees to.
const serverWindow = "server_max_window_bits=15"

// nameWindow adds the size of the server's window to the response to a handshake if the offer to which
// the library has agreed names it: the response must name it, too (RFC 7692, section 7.1.2.1).
func nameWindow(response, request http.Header) {
	agreed := response.Get(extensionsField)
	if agreed == "" {
		return
	}
	for offer := range strings.SplitSeq(strings.Join(request.Values(extensionsField), ","), ",") {
		parameters := strings.Split(offer, ";")
		for i := range parameters {
			parameters[i] = strings.TrimSpace(parameters[i])
		}
		if parameters[0] == "permessage-deflate" && !slices.ContainsFunc(parameters[1:], isRefused) {
			if slices.Contains(parameters, serverWindow) {
				response.Set(extensionsField, agreed+"; "+serverWindow)
			}
			return // the library agrees to the first one
		}
	}
}

// isRefused reports whether the library refuses an offer for a parameter.
func isRefused(parameter string) bool {
	switch parameter {
	case "client_no_context_takeover", "server_no_context_takeover", "client_max_window_bits", serverWindow:
		return false
	}
	return !strings.HasPrefix(parameter, "client_max_window_bits=")
}

// isCompressed reports whether the response to a handshake agrees to compression.
func isCompressed(response http.Header) bool {
	return response.Get(extensionsField) != "" // the only one that the gateway has
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
