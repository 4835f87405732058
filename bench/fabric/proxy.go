package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A rawMessage is a message that is not decoded.
type rawMessage struct{ data mem.BufferSlice }

// rawCodec passes bytes on in buffers that belong to grpc-go.
type rawCodec struct{}

// Name returns the name of the codec for protocol buffers: callers don't see this codec.
func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*rawMessage)
	if !ok {
		return nil, fmt.Errorf("raw codec: %T", v)
	}
	return m.data, nil // grpc-go frees it once it is sent
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return fmt.Errorf("raw codec: %T", v)
	}
	data.Ref()
	m.data = data
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// l7 forwards unary calls of grpc-go clients to grpc-go servers, by their service, with the three
// policies that a Go programmer would write. It knows that the calls are unary, which spares it a
// stream upstream and a goroutine.
type l7 struct {
	upstreams map[string]conn
	allowed   map[string]bool // access list: services
	bucket    bucket
	calls     sync.Map // of *atomic.Int64, by method
}

// proxy starts grpc-go's layer-7 proxy.
func (a *actor) proxy(context.Context) error {
	x := &l7{upstreams: map[string]conn{}, allowed: map[string]bool{}}
	x.bucket = bucket{rate: 1e6, burst: 1e6, tokens: 1e6, last: time.Now()}
	for service, targets := range a.spec.Targets {
		c, err := dial(stackGRPC, targets[0], a.spec.Identity)
		if err != nil {
			return err
		}
		x.upstreams[service], x.allowed[service] = c, true
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(x.handle), grpc.MaxRecvMsgSize(maxMessage))
	target, stop, err := serveGRPC(server, a.spec.Listen)
	if err != nil {
		return err
	}
	a.addr, a.close = target, func() error { return errors.Join(stop(), x.close()) }
	return nil
}

func (x *l7) close() error {
	var errs []error
	for _, c := range x.upstreams {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (x *l7) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	service := serviceOf(method)
	if err := x.policies(service, method); err != nil {
		return err
	}
	var request, response rawMessage
	if err := s.RecvMsg(&request); err != nil {
		return err
	}
	ctx := s.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		delete(md, ":authority")
		delete(md, "content-type")
		delete(md, "user-agent")
		if len(md) > 0 {
			ctx = metadata.NewOutgoingContext(ctx, md)
		}
	}
	var header, trailer metadata.MD
	err := x.upstreams[service].Invoke(ctx, method, &request, &response, grpc.ForceCodecV2(rawCodec{}), grpc.Header(&header), grpc.Trailer(&trailer))
	s.SetTrailer(trailer)
	if err != nil {
		return err
	}
	if delete(header, "content-type"); len(header) > 0 {
		if err := s.SetHeader(header); err != nil {
			return err
		}
	}
	return s.SendMsg(&response)
}

// policies applies the access list, the token bucket and the counter.
func (x *l7) policies(service, method string) error {
	if !x.allowed[service] {
		return status.Error(codes.PermissionDenied, "this caller may not call this")
	}
	if !x.bucket.allow(time.Now()) {
		return status.Error(codes.ResourceExhausted, "too many calls")
	}
	count, ok := x.calls.Load(method)
	if !ok {
		count, _ = x.calls.LoadOrStore(method, new(atomic.Int64))
	}
	count.(*atomic.Int64).Add(1) //nolint:errcheck // nothing else is in there
	return nil
}

func serviceOf(method string) string {
	for i := 1; i < len(method); i++ {
		if method[i] == '/' {
			return method[1:i]
		}
	}
	return ""
}

// A bucket is a token bucket.
type bucket struct {
	mu          sync.Mutex
	rate, burst float64
	tokens      float64
	last        time.Time
}

func (b *bucket) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.last).Seconds())
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
