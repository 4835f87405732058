package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A scene is something that must look the same over every pairing.
type scene struct {
	service scripted
	sides   sides
	act     func(t *testing.T, c grpc.ClientConnInterface, o *outcome)
}

// TestSameAsGRPC plays every scene with grpc-go alone, and with us on one side
// or on both.
func TestSameAsGRPC(t *testing.T) {
	for name, s := range scenes() {
		t.Run(name, func(t *testing.T) {
			want := s.play(t, dialGRPC)
			if len(want.Errors)+len(want.Notes) == 0 {
				t.Fatal("the scene shows nothing")
			}
			for name, p := range pairings() {
				t.Run(name, func(t *testing.T) {
					if diff := cmp.Diff(s.play(t, p.dial), want); diff != "" {
						t.Errorf("got -, grpc-go says +:\n%s", diff)
					}
				})
			}
		})
	}
}

func (s scene) play(t *testing.T, dial dialTest) outcome {
	t.Helper()
	var o outcome
	s.act(t, dial(t, s.service.register, s.sides), &o)
	o.finish()
	return o
}

func scenes() map[string]scene {
	all := map[string]scene{}
	for _, some := range []map[string]scene{statusScenes(), metadataScenes(), streamScenes(), wrongScenes(), sizeScenes(), contextScenes()} {
		maps.Copy(all, some)
	}
	return all
}

// failing is a scene of a unary call that ends with err.
func failingWith(err error) scene {
	return scene{
		service: scripted{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) { return nil, err }},
		act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
			o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
		},
	}
}

func statusScenes() map[string]scene {
	detailed, _ := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.ErrorInfo{Reason: "quota", Domain: "example.org"})
	return map[string]scene{
		"plain error":             failingWith(errors.New("broken")),
		"context cancelled":       failingWith(context.Canceled),
		"deadline":                failingWith(fmt.Errorf("read: %w", context.DeadlineExceeded)),
		"end of file":             failingWith(io.EOF),
		"status":                  failingWith(status.Error(codes.NotFound, "no such thing")),
		"status with details":     failingWith(detailed.Err()),
		"wrapped status":          failingWith(fmt.Errorf("look: %w", status.Error(codes.NotFound, "no such thing"))),
		"status of no known code": failingWith(status.Error(codes.Code(77), "what")),
		"text beyond ASCII":       failingWith(status.Error(codes.Aborted, "größer\n100%\t☺")),
		"empty text":              failingWith(status.Error(codes.DataLoss, "")),
		"nil response": {
			service: scripted{unary: func(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) { return nil, nil }},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
			},
		},
	}
}

// says answers with text.
func says(format string, args ...any) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Username: fmt.Sprintf(format, args...)}, nil
}

func metadataScenes() map[string]scene {
	return map[string]scene{
		"header and trailer": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				e1 := grpc.SetHeader(ctx, metadata.Pairs("a", "1", "b-bin", "\x00\xff"))
				e2 := grpc.SetHeader(ctx, metadata.Pairs("a", "2"))
				e3 := grpc.SendHeader(ctx, metadata.Pairs("c", "3"))
				e4 := grpc.SetHeader(ctx, metadata.Pairs("d", "late"))
				e5 := grpc.SendHeader(ctx, metadata.Pairs("d", "late"))
				e6 := grpc.SetTrailer(ctx, metadata.Pairs("t", "1", "t-bin", "\x01"))
				e7 := grpc.SetTrailer(ctx, metadata.Pairs("t", "2"))
				return says("%v %v %v %v %v %v %v", e1, e2, e3, e4, e5, e6, e7)
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
			},
		},
		"header and trailer with an error": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				_ = grpc.SetHeader(ctx, metadata.Pairs("a", "1"))
				_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "1"))
				return nil, status.Error(codes.OutOfRange, "far")
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
			},
		},
		"reserved keys from a handler": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				err := grpc.SendHeader(ctx, metadata.Pairs("grpc-status", "5", "te", "x", "fine", "1"))
				_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-message", "5", "fine", "1"))
				return says("%v", err)
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
			},
		},
		"keys from a caller": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				return says("%s", heard(ctx))
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("one", "1", "one", "2", "raw-bin", "\x00\x80", "grpc-status", "3", "te", "no", "Mixed", "m"))
				ctx = metadata.AppendToOutgoingContext(ctx, "more", "4", "empty", "")
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("inner", "stays"))
				o.unaryCall(t, ctx, c, new(testgrpc.SimpleRequest))
			},
		},
		"wrong keys from a caller": {
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				for _, md := range []metadata.MD{{"bad key": {"1"}}, {"control": {"\x01"}}, {"": {"1"}}} {
					o.unaryCall(t, metadata.NewOutgoingContext(t.Context(), md), c, new(testgrpc.SimpleRequest))
				}
			},
		},
	}
}

func contextScenes() map[string]scene {
	return map[string]scene{
		"deadline travels": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				d, ok := ctx.Deadline()
				left := time.Until(d)
				return says("%v %v", ok, left > 50*time.Second && left <= time.Minute)
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				o.unaryCall(t, ctx, c, new(testgrpc.SimpleRequest))
				o.unaryCall(t, t.Context(), c, new(testgrpc.SimpleRequest))
			},
		},
		"deadline passes in the handler": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				_, err := client(c).UnaryCall(ctx, new(testgrpc.SimpleRequest))
				o.note("%v", status.Code(err)) // grpc-go's text depends on who is first
			},
		},
		"over before it begins": {
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				o.unaryCall(t, ctx, c, new(testgrpc.SimpleRequest))
				ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
				defer cancel()
				o.unaryCall(t, ctx, c, new(testgrpc.SimpleRequest))
				_, err := client(c).FullDuplexCall(ctx)
				o.failed(err)
			},
		},
		"what a handler's context knows": {
			service: scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				name, _ := grpc.Method(ctx)
				p, ok := peer.FromContext(ctx)
				return says("%s %v %v %v", name, ok, p.Addr != nil, ctx.Value(testKey{}))
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				o.unaryCall(t, context.WithValue(t.Context(), testKey{}, "caller's"), c, new(testgrpc.SimpleRequest))
			},
		},
	}
}

type testKey struct{}
