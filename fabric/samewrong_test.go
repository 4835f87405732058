package fabric

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

const unaryMethod = "/grpc.testing.TestService/UnaryCall"

// raw opens a stream of any kind on any method.
func raw(t *testing.T, c grpc.ClientConnInterface, method string, client, server bool) grpc.ClientStream {
	t.Helper()
	s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: client, ServerStreams: server}, method)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wrongScenes() map[string]scene {
	return map[string]scene{
		"no such method": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			for _, method := range []string{"/grpc.testing.TestService/No", "/no.Service/No", "/", "/no", "/a/b/c"} {
				o.failed(c.Invoke(t.Context(), method, new(testgrpc.Empty), new(testgrpc.Empty)))
				s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
				if err == nil {
					err = s.RecvMsg(new(testgrpc.Empty))
				}
				o.failed(err)
			}
		}},
		"no request": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			s := raw(t, c, unaryMethod, true, false)
			o.failed(s.CloseSend())
			o.failed(s.RecvMsg(new(testgrpc.SimpleResponse)))
		}},
		"two requests": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			s := raw(t, c, unaryMethod, true, false)
			o.failed(s.SendMsg(new(testgrpc.SimpleRequest)))
			o.failed(s.SendMsg(new(testgrpc.SimpleRequest)))
			o.failed(s.CloseSend())
			o.failed(s.RecvMsg(new(testgrpc.SimpleResponse)))
		}},
		"send after the end": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			s := raw(t, c, unaryMethod, true, false)
			o.failed(s.CloseSend())
			o.failed(s.SendMsg(new(testgrpc.SimpleRequest)))
		}},
		"two requests on a stream for one": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			s := raw(t, c, unaryMethod, false, true)
			o.failed(s.SendMsg(new(testgrpc.SimpleRequest)))
			o.failed(s.SendMsg(new(testgrpc.SimpleRequest)))
		}},
		"unary call of a streaming method": {
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				in, err := ss.Recv()
				if err != nil {
					return err
				}
				_ = ss.SetHeader(map[string][]string{"h": {"1"}})
				return ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()})
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				out := new(testgrpc.StreamingOutputCallResponse)
				o.failed(c.Invoke(t.Context(), "/grpc.testing.TestService/FullDuplexCall",
					&testgrpc.StreamingOutputCallRequest{Payload: payload(7)}, out, grpc.Header(&o.Header)))
				o.note("%d bytes", len(out.GetPayload().GetBody()))
			},
		},
		"request of another type": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			out := new(testgrpc.StreamingOutputCallResponse)
			o.failed(c.Invoke(t.Context(), unaryMethod, &testgrpc.Payload{Body: []byte("x")}, out))
		}},
		"no compressor of that name": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.UseCompressor("nope"))
		}},
		"no codec of that name": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.CallContentSubtype("nope"))
		}},
		"not a message": {act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			o.failed(c.Invoke(t.Context(), unaryMethod, "text", new(testgrpc.SimpleResponse)))
		}},
		"credentials": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				return says("%s", heard(ctx))
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.PerRPCCredentials(token{md: map[string]string{"Token": "t"}}))
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.PerRPCCredentials(token{err: status.Error(codes.NotFound, "key")}))
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.PerRPCCredentials(token{err: status.Error(codes.Unavailable, "key")}))
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest), grpc.PerRPCCredentials(token{err: context.Canceled}))
			},
		},
		"interceptors": {
			sides: interceptedSides(),
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, &testgrpc.SimpleRequest{})
				s, err := client(c).FullDuplexCall(t.Context())
				o.failed(err)
				_, err = s.Recv()
				o.failed(err)
			},
			service: scripted{
				unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
					return says("%v", ctx.Value(testKey{}))
				},
				duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
					return status.Errorf(codes.Unknown, "%v", ss.Context().Value(testKey{}))
				},
			},
		},
		"unknown service handler": {
			sides: sides{
				server: []grpc.ServerOption{grpc.UnknownServiceHandler(unknown)},
				fabric: []Option{WithUnknownService(unknown)},
			},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				out := new(testgrpc.SimpleResponse)
				o.failed(c.Invoke(t.Context(), "/no.Such/Method", &testgrpc.SimpleRequest{Payload: payload(3)}, out))
				o.note("%s %d", out.GetUsername(), len(out.GetPayload().GetBody()))
			},
		},
	}
}

func unknown(_ any, ss grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(ss)
	in := new(testgrpc.SimpleRequest)
	if err := ss.RecvMsg(in); err != nil {
		return err
	}
	return ss.SendMsg(&testgrpc.SimpleResponse{Username: name, Payload: in.GetPayload()})
}

// token is credentials that are metadata or an error.
type token struct {
	md  map[string]string
	err error
}

var _ credentials.PerRPCCredentials = token{}

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return t.md, t.err
}
func (token) RequireTransportSecurity() bool { return false }

// mark is an interceptor's trace in a context.
func mark(ctx context.Context, name string) context.Context {
	before, _ := ctx.Value(testKey{}).(string)
	return context.WithValue(ctx, testKey{}, before+name)
}

type markedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (m markedStream) Context() context.Context { return m.ctx }

func marking(name string) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(mark(ctx, name+info.FullMethod), req)
		}, func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, markedStream{ss, mark(ss.Context(), name+info.FullMethod)})
		}
}

func interceptedSides() sides {
	u1, s1 := marking("first")
	u2, s2 := marking("second")
	return sides{
		server: []grpc.ServerOption{grpc.ChainUnaryInterceptor(u1, u2), grpc.ChainStreamInterceptor(s1, s2)},
		fabric: []Option{WithUnaryServerInterceptor(u1, u2), WithStreamServerInterceptor(s1, s2)},
	}
}

func sizeScenes() map[string]scene {
	return map[string]scene{
		"too large for the server": {
			sides: sides{server: []grpc.ServerOption{grpc.MaxRecvMsgSize(1000)}, fabric: []Option{WithMaxReceive(1000)}},
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				_, _ = ss.Recv()
				return status.Error(codes.Unknown, "the handler's own")
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, &testgrpc.SimpleRequest{Payload: payload(2000)})
				s, err := client(c).FullDuplexCall(t.Context())
				o.failed(err)
				_ = s.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(2000)})
				_, err = s.Recv()
				o.failed(err)
			},
		},
		"too large for the usual limit": {
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, &testgrpc.SimpleRequest{Payload: payload(5 << 20)})
			},
		},
		"too large for the call": {
			service: scripted{output: func(_ *testgrpc.StreamingOutputCallRequest, ss testgrpc.TestService_StreamingOutputCallServer) error {
				return ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(2000)})
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				in := &testgrpc.SimpleRequest{Payload: payload(2000)}
				o.unaryCall(t, t.Context(), c, in, grpc.MaxCallSendMsgSize(1000))
				o.unaryCall(t, t.Context(), c, in, grpc.MaxCallRecvMsgSize(1000))
				s, err := client(c).StreamingOutputCall(t.Context(), new(testgrpc.StreamingOutputCallRequest), grpc.MaxCallRecvMsgSize(1000))
				o.failed(err)
				o.drain(s)
			},
		},
	}
}
