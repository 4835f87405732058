package fabric

import (
	"context"

	"google.golang.org/grpc"
)

// chainUnaryServer combines all interceptors into one, the first outermost; nil for none.
func chainUnaryServer(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	first, rest := all[0], chainUnaryServer(all[1:])
	if rest == nil {
		return first
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return first(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return rest(ctx, req, info, next)
		})
	}
}

// chainStreamServer combines all interceptors into one, the first outermost; nil for none.
func chainStreamServer(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	first, rest := all[0], chainStreamServer(all[1:])
	if rest == nil {
		return first
	}
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return first(srv, s, info, func(srv any, s grpc.ServerStream) error {
			return rest(srv, s, info, next)
		})
	}
}

// chainUnaryClient returns end with all interceptors before it, the first outermost.
func chainUnaryClient(all []grpc.UnaryClientInterceptor, end grpc.UnaryInvoker) grpc.UnaryInvoker {
	if len(all) == 0 {
		return end
	}
	next := chainUnaryClient(all[1:], end)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return all[0](ctx, method, req, reply, cc, next, opts...)
	}
}

// chainStreamClient returns end with all interceptors before it, the first outermost.
func chainStreamClient(all []grpc.StreamClientInterceptor, end grpc.Streamer) grpc.Streamer {
	if len(all) == 0 {
		return end
	}
	next := chainStreamClient(all[1:], end)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return all[0](ctx, desc, cc, method, next, opts...)
	}
}
