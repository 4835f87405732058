// Package hotel is a small web shop of five services, in the shape of
// DeathStarBench's hotel reservation, with its data in memory.
package hotel

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

//go:generate ./generate.sh

// The services' full names.
const (
	FrontendService = "outboard.bench.hotel.Frontend"
	SearchService   = "outboard.bench.hotel.Search"
	GeoService      = "outboard.bench.hotel.Geo"
	RateService     = "outboard.bench.hotel.Rate"
	ProfileService  = "outboard.bench.hotel.Profile"
)

// message is the type constraint of pointers to T that are protobuf messages.
type message[T any] interface {
	*T
	proto.Message
}

// register registers a service of one unary method, as generated code would.
func register[I any, PI message[I], O proto.Message](r grpc.ServiceRegistrar, service, method string, serve func(context.Context, PI) (O, error)) {
	full := "/" + service + "/" + method
	handler := func(srv any, ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
		in := PI(new(I))
		if err := decode(in); err != nil {
			return nil, err
		}
		if between == nil {
			return serve(ctx, in)
		}
		about := &grpc.UnaryServerInfo{Server: srv, FullMethod: full}
		return between(ctx, in, about, func(ctx context.Context, in any) (any, error) {
			return serve(ctx, in.(PI)) //nolint:errcheck // what decode got
		})
	}
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil), Metadata: "hotel.proto",
		Methods: []grpc.MethodDesc{{MethodName: method, Handler: handler}},
	}, struct{}{})
}

// invoke makes a unary call.
func invoke[O any, PO message[O]](ctx context.Context, c grpc.ClientConnInterface, method string, in proto.Message) (PO, error) {
	out := PO(new(O))
	if err := c.Invoke(ctx, method, in, out); err != nil {
		return nil, err
	}
	return out, nil
}
