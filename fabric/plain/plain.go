// Package plain carries calls from and to plain gRPC peers.
package plain

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoregistry"

	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/outboard-run/outboard/fabric/call"
)

// Options of a server and of a transport. The zero value works: without TLS.
type Options struct {
	// Logger gets what goes wrong. Default: none.
	Logger *slog.Logger
	// TLS secures the connections; nil: plain text.
	TLS *tls.Config
	// MaxMessage bounds one message that is received. Default 64 MiB.
	MaxMessage int
	// Identify says who the peer of ctx is. Default: no tenant, the peer's address.
	Identify func(ctx context.Context) (tenant, peer string, err error)
	// Services lists the services for reflection; nil: no reflection.
	Services func() map[string]grpc.ServiceInfo
	// Files finds the descriptors for reflection. Default protoregistry.GlobalFiles.
	Files protodesc.Resolver
	// Types finds extensions. Default protoregistry.GlobalTypes.
	Types protoregistry.ExtensionTypeResolver
	// Health answers health checks; nil: they are calls like others.
	Health grpc_health_v1.HealthServer
	// Authority overrides the authority that Dial names.
	Authority string
	// Server and Dial are more options for grpc-go.
	Server []grpc.ServerOption
	Dial   []grpc.DialOption
	// Credentials override TLS.
	Credentials credentials.TransportCredentials
}

// A Server serves plain gRPC peers.
type Server struct{}

// NewServer makes a server whose calls h serves.
func NewServer(h call.Handler, o Options) *Server { panic("soon") }

// Serve serves the connections of l until Stop or GracefulStop.
func (s *Server) Serve(l net.Listener) error { panic("soon") }

// ServeHTTP serves one request of a server of HTTP/2 that has the port.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("soon") }

// GracefulStop waits for the calls, Stop ends them.
func (s *Server) GracefulStop() { panic("soon") }

// Stop ends all calls.
func (s *Server) Stop() { panic("soon") }

// Dial makes a transport to a gRPC server.
func Dial(target string, o Options) (call.Transport, error) { panic("soon") }
