// Package plain carries calls from and to plain gRPC peers: programs in any
// language, with nothing of the fabric's.
//
// A [Server] hands every call that a peer makes, of any service, to a
// [call.Handler]; [Dial] gives a [call.Transport] to a gRPC server. Both are
// grpc-go with a codec that does not decode: messages stay the bytes that they
// were. Metadata, deadlines, status details, the compression's name and trailers
// pass as they are; grpc-go itself takes compressed messages apart and makes them
// anew, so both compressors must be registered in this program (gzip is).
//
// A message is the buffer that grpc-go received it in, or a copy where that was
// in pieces; [call.Message.Free] gives it back.
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

// Options of a server and of a transport. The zero value works, without TLS.
type Options struct {
	// Logger gets what goes wrong with connections. Default: none.
	Logger *slog.Logger
	// TLS secures the connections; nil: plain text. A connection that a server
	// is given as a *tls.Conn is taken as it is.
	TLS *tls.Config
	// MaxMessage bounds one message that is received, in bytes. Default 64 MiB.
	MaxMessage int
	// Identify says who makes the calls of a connection whose peer ctx has (see
	// the packages peer and credentials); an error refuses the call. Default: no
	// tenant, and the peer's address.
	Identify func(ctx context.Context) (tenant, peer string, err error)
	// Descriptors are for reflection and tell unary methods from streaming
	// ones. Nil: calls of reflection go to the handler like others.
	Descriptors Descriptors
	// Extensions finds extensions for reflection. Default protoregistry.GlobalTypes.
	Extensions reflection.ExtensionResolver
	// Health answers health checks. Nil: they go to the handler like others.
	Health grpc_health_v1.HealthServer
	// Server and Dial are more options for grpc-go.
	Server []grpc.ServerOption
	Dial   []grpc.DialOption
}

// Descriptors say what a server serves.
type Descriptors interface {
	// Services lists the full names.
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
	if o.Identify == nil {
		o.Identify = identifyAddress
	}
}
