package fabric

import (
	"crypto/tls"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
)

// maxReceive is grpc-go's limit for received messages, on both sides.
const maxReceive = 4 << 20

// defaultDrainTimeout leaves time for ordinary calls, and is shorter than the usual time that
// service managers give a process to stop.
const defaultDrainTimeout = 10 * time.Second

// An Option changes how a [ClientConn] or a [Server] behaves. An option that
// belongs to one side does nothing on the other, so that one list serves both.
type Option func(*options)

type options struct {
	logger         *slog.Logger
	network        *Network
	tls            *tls.Config
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
	drainTimeout   time.Duration
	maxCalls       int // 0: the transport's default
}

func newOptions(given []Option) options {
	o := options{maxReceive: maxReceive, maxSend: math.MaxInt32, drainTimeout: defaultDrainTimeout, logger: slog.New(slog.DiscardHandler)}
	for _, set := range given {
		set(&o)
	}
	return o
}

// WithLogger sets the logger for failures that no call returns. Default: none.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithNetwork sets the Network that resolves the names of "inproc:NAME".
func WithNetwork(n *Network) Option { return func(o *options) { o.network = n } }

// WithTLS secures targets over TCP by TLS 1.3 with this configuration.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// WithMaxCalls bounds the calls in flight on one connection each way, over shared memory and over
// TCP with TLS. The calls of one service may take three quarters of it. Calls beyond are refused
// with codes.ResourceExhausted. The peer may have a lower limit. Default: 16384.
func WithMaxCalls(calls int) Option { return func(o *options) { o.maxCalls = calls } }

// WithDrainTimeout bounds how long [Server.Run] serves the calls in flight from its node after its
// context has ended. Default: 10 s. [Server.GracefulStop] has no bound.
func WithDrainTimeout(d time.Duration) Option { return func(o *options) { o.drainTimeout = d } }

// WithCodec makes every call use c, whatever its content-subtype.
func WithCodec(c encoding.CodecV2) Option { return func(o *options) { o.codec = c } }

// WithMaxReceive limits received messages to this many bytes. Default: 4 MiB.
func WithMaxReceive(bytes int) Option { return func(o *options) { o.maxReceive = bytes } }

// WithMaxSend limits sent messages to this many bytes. Default: math.MaxInt32.
func WithMaxSend(bytes int) Option { return func(o *options) { o.maxSend = bytes } }

// WithCallOptions adds options that apply to every call, before its own.
func WithCallOptions(more ...grpc.CallOption) Option {
	return func(o *options) { o.callOptions = append(o.callOptions, more...) }
}

// WithPerRPCCredentials adds c's metadata to every call, and to the offers of a listener on
// a node.
func WithPerRPCCredentials(c credentials.PerRPCCredentials) Option {
	return func(o *options) { o.credentials = append(o.credentials, c) }
}

// WithUnaryClientInterceptor adds interceptors, the first outermost. The
// *grpc.ClientConn that they receive is nil.
func WithUnaryClientInterceptor(more ...grpc.UnaryClientInterceptor) Option {
	return func(o *options) { o.unaryClient = append(o.unaryClient, more...) }
}

// WithStreamClientInterceptor adds interceptors, the first outermost. The
// *grpc.ClientConn that they receive is nil.
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

// WithUnknownService serves calls of methods that are not registered.
func WithUnknownService(h grpc.StreamHandler) Option {
	return func(o *options) { o.unknownService = h }
}
