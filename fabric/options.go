package fabric

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
)

// maxReceive is grpc-go's limit for received messages, on both sides.
const maxReceive = 4 << 20

// An Option changes how a [ClientConn] or a [Server] behaves. An option that
// belongs to one side does nothing on the other, so that one list serves both.
type Option func(*options)

type options struct {
	logger         *slog.Logger
	network        *Network
	tls            *tls.Config
	peer           *peer.Peer
	codec          encoding.CodecV2
	maxReceive     int
	maxSend        int
	borrow         bool
	callOptions    []grpc.CallOption
	credentials    []credentials.PerRPCCredentials
	unaryClient    []grpc.UnaryClientInterceptor
	streamClient   []grpc.StreamClientInterceptor
	unaryServer    []grpc.UnaryServerInterceptor
	streamServer   []grpc.StreamServerInterceptor
	unknownService grpc.StreamHandler
	dialer         func(context.Context) (*Link, error)
}

func newOptions(given []Option) options {
	o := options{maxReceive: maxReceive, maxSend: math.MaxInt32, logger: slog.New(slog.DiscardHandler)}
	for _, set := range given {
		set(&o)
	}
	return o
}

// WithLogger says where mistakes are told that have no caller to be told to.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithNetwork is where the names of "inproc:NAME" live.
func WithNetwork(n *Network) Option { return func(o *options) { o.network = n } }

// WithTLS is for targets that go over TCP: TLS 1.3 with this configuration.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// WithPeer says who is at the other end of a transport given to [NewClientConn].
// Its AuthInfo decides whether credentials that need a secure transport may go.
func WithPeer(p *peer.Peer) Option { return func(o *options) { o.peer = p } }

// WithDialer makes connections in place of the target's own way.
func WithDialer(dial func(context.Context) (*Link, error)) Option {
	return func(o *options) { o.dialer = dial }
}

// WithCodec makes every call use this codec, whatever its content-subtype.
func WithCodec(c encoding.CodecV2) Option { return func(o *options) { o.codec = c } }

// WithMaxReceive limits received messages to this many bytes; without it 4 MiB.
func WithMaxReceive(bytes int) Option { return func(o *options) { o.maxReceive = bytes } }

// WithMaxSend limits sent messages to this many bytes.
func WithMaxSend(bytes int) Option { return func(o *options) { o.maxSend = bytes } }

// WithCallOptions go before the options of every call.
func WithCallOptions(more ...grpc.CallOption) Option {
	return func(o *options) { o.callOptions = append(o.callOptions, more...) }
}

// WithPerRPCCredentials adds c's metadata to every call.
func WithPerRPCCredentials(c credentials.PerRPCCredentials) Option {
	return func(o *options) { o.credentials = append(o.credentials, c) }
}

// WithUnaryClientInterceptor adds interceptors, the first outermost. The
// *grpc.ClientConn that they get is nil: there is none.
func WithUnaryClientInterceptor(more ...grpc.UnaryClientInterceptor) Option {
	return func(o *options) { o.unaryClient = append(o.unaryClient, more...) }
}

// WithStreamClientInterceptor adds interceptors, the first outermost. The
// *grpc.ClientConn that they get is nil: there is none.
func WithStreamClientInterceptor(more ...grpc.StreamClientInterceptor) Option {
	return func(o *options) { o.streamClient = append(o.streamClient, more...) }
}

// WithUnaryServerInterceptor adds interceptors, the first outermost.
func WithUnaryServerInterceptor(more ...grpc.UnaryServerInterceptor) Option {
	return func(o *options) { o.unaryServer = append(o.unaryServer, more...) }
}

// WithStreamServerInterceptor adds interceptors, the first outermost.
func WithStreamServerInterceptor(more ...grpc.StreamServerInterceptor) Option {
	return func(o *options) { o.streamServer = append(o.streamServer, more...) }
}

// WithUnknownService serves calls of methods that nobody registered.
func WithUnknownService(h grpc.StreamHandler) Option {
	return func(o *options) { o.unknownService = h }
}
