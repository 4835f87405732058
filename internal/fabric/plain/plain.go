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
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // the compression that every gRPC peer may use
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/outboard-run/outboard/internal/acceptor"
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
	// MaxHeld bounds the messages that the calls of a server hold together, in bytes: as they arrive,
	// decompressed, until their handler frees them, and until a response is sent. The calls of a client
	// may hold half of it, those of one connection a quarter; a call beyond that ends with
	// codes.ResourceExhausted. The first 16 KiB of a call are not counted. Default 1 GiB, or four times
	// MaxMessage if that is more.
	MaxHeld int64
	// MaxConns bounds the connections that Serve accepts; those of one address are half at most (see
	// acceptor.Slots). Default 20,000, or 30 percent of the process's descriptors if that is less.
	MaxConns int
	// MaxCalls bounds the calls in flight of a connection; a client has twice as many at most, and all
	// clients have four times as many. Default 16384.
	MaxCalls int
	// ClientTimeout is how long a client may make the server wait for the rest of a message, beside a
	// second for each 4 KiB. While more than half of MaxHeld is held, or of a client's share, it is
	// also how long a client may make a response wait, beside a second for each 64 KiB. Default 30 s.
	ClientTimeout time.Duration
	// ClientTimeoutSetting is the setting by which a user changes ClientTimeout, for errors.
	ClientTimeoutSetting string
	// Refused, if not nil, is called with one of Reasons when the server ends a call or a connection
	// because of its client.
	Refused func(reason string)
	// Identify returns the caller of a call from the peer in ctx (see grpc-go's
	// packages peer and credentials); an error rejects the call. It must not block. A tenant is a
	// client with limits of its own; without tenants a client is a host, or a network of IPv6.
	// Default: no tenant, and the peer's address.
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
		o.MaxHeld = max(1<<30, connShare*int64(min(o.MaxMessage, 1<<40)))
	}
	if o.MaxConns <= 0 {
		o.MaxConns = acceptor.Share(defaultMaxConns, connsPercent)
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = 16384
	}
	o.MaxCalls = min(o.MaxCalls, 1<<30)
	if o.ClientTimeout <= 0 {
		o.ClientTimeout = 30 * time.Second
	}
	if o.Identify == nil {
		o.Identify = identifyAddress
	}
}
