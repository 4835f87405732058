// Package plain carries calls from and to plain gRPC peers: programs in any
// language, without the fabric's library.
//
// A [Server] passes every call of a peer, to any service, to a
// [call.Handler]; [Dial] returns a [call.Transport] to a gRPC server. Both use
// grpc-go with a codec that does not decode: messages remain encoded.
// Metadata, deadlines, status details, the compression's name and trailers
// pass unchanged; grpc-go itself decompresses and compresses
// messages, so both compressors must be registered in this program (gzip is).
//
// A message is the buffer in which grpc-go received it, or a copy if it was
// received in several buffers; [call.Message.Free] releases it.
package plain

import (
	"context"
	"crypto/tls"
	"log/slog"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // the compression that every gRPC peer may use
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/reflect/protodesc"
)

// Options are the options of a server or a transport. The zero value selects the defaults, without
// TLS.
type Options struct {
	// Logger receives errors of connections. Default: none.
	Logger *slog.Logger
	// TLS secures the connections; nil means plain text. It does not apply to a *tls.Conn
	// that is passed to Server.ServeConn.
	TLS *tls.Config
	// MaxMessage bounds a received message, in bytes. Default 64 MiB.
	MaxMessage int
	// MaxHeld bounds the received messages that the calls of a server hold together, in bytes, as they
	// are when they are decompressed: further messages are refused with codes.ResourceExhausted.
	// Messages of up to 16 KiB are not counted. Default 1 GiB.
	MaxHeld int64
	// Identify returns the caller of a call from the peer in ctx (see grpc-go's
	// packages peer and credentials); an error rejects the call. Default: no
	// tenant, and the peer's address.
	Identify func(ctx context.Context) (tenant, peer string, err error)
	// Descriptors serve reflection and distinguish unary methods from streaming ones. If nil, calls
	// of reflection go to the handler like other calls.
	Descriptors Descriptors
	// Extensions finds extensions for reflection. Default protoregistry.GlobalTypes.
	Extensions reflection.ExtensionResolver
	// Health answers health checks. If nil, they go to the handler like other calls.
	Health grpc_health_v1.HealthServer
	// Server and Dial are additional options for grpc-go.
	Server []grpc.ServerOption
	Dial   []grpc.DialOption
}

// Descriptors describe the services of a server.
type Descriptors interface {
	// Services returns the full names of the services.
	Services() []string
	protodesc.Resolver
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = 1 << 30
	}
	if o.Identify == nil {
		o.Identify = identifyAddress
	}
}
