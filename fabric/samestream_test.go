package fabric

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func send(ss testgrpc.TestService_StreamingOutputCallServer, n int) {
	for i := range n {
		_ = ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: payload(i)})
	}
}

// drain receives until an error.
func (o *outcome) drain(s interface {
	Recv() (*testgrpc.StreamingOutputCallResponse, error)
	grpc.ClientStream
},
) {
	for {
		m, err := s.Recv()
		if err != nil {
			o.failed(err)
			break
		}
		o.note("%d bytes", len(m.GetPayload().GetBody()))
	}
	o.Header, _ = s.Header()
	o.Trailer = s.Trailer()
}

func streamScenes() map[string]scene {
	return map[string]scene{
		"error after messages": {
			service: scripted{output: func(_ *testgrpc.StreamingOutputCallRequest, ss testgrpc.TestService_StreamingOutputCallServer) error {
				_ = ss.SetHeader(metadata.Pairs("h", "1"))
				send(ss, 3)
				ss.SetTrailer(metadata.Pairs("t", "1"))
				ss.SetTrailer(metadata.Pairs("t", "2"))
				return status.Error(codes.Aborted, "enough")
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).StreamingOutputCall(t.Context(), new(testgrpc.StreamingOutputCallRequest))
				if err != nil {
					t.Fatal(err)
				}
				o.drain(s)
			},
		},
		"options of a stream": {
			service: scripted{output: func(_ *testgrpc.StreamingOutputCallRequest, ss testgrpc.TestService_StreamingOutputCallServer) error {
				_ = ss.SendHeader(metadata.Pairs("h", "1"))
				send(ss, 1)
				ss.SetTrailer(metadata.Pairs("t", "1"))
				return nil
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				var header, trailer metadata.MD
				s, err := client(c).StreamingOutputCall(t.Context(), new(testgrpc.StreamingOutputCallRequest),
					grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { o.note("finished: %v", err) }))
				if err != nil {
					t.Fatal(err)
				}
				o.drain(s)
				o.note("%v %v", own(header), own(trailer))
			},
		},
		"compressed": {
			service: scripted{output: func(in *testgrpc.StreamingOutputCallRequest, ss testgrpc.TestService_StreamingOutputCallServer) error {
				send(ss, len(in.GetPayload().GetBody()))
				return nil
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{Payload: payload(5)}, grpc.UseCompressor(gzip.Name))
				if err != nil {
					t.Fatal(err)
				}
				o.drain(s)
			},
		},
		"handler ends early": {
			service: scripted{input: func(testgrpc.TestService_StreamingInputCallServer) error {
				return status.Error(codes.PermissionDenied, "not you")
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).StreamingInputCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					err = s.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(100)})
				}
				o.failed(err)
				_, err = s.CloseAndRecv()
				o.failed(err)
			},
		},
		"handler says nothing": {
			service: scripted{input: func(testgrpc.TestService_StreamingInputCallServer) error { return nil }},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).StreamingInputCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.CloseAndRecv()
				o.failed(err)
			},
		},
		"handler says too much": {
			service: scripted{input: func(ss testgrpc.TestService_StreamingInputCallServer) error {
				for range 2 {
					_ = ss.SendMsg(new(testgrpc.StreamingInputCallResponse))
				}
				return nil
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).StreamingInputCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.CloseAndRecv()
				o.failed(err)
			},
		},
		"cancelled while both wait": {
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				_ = ss.SendHeader(metadata.Pairs("h", "1"))
				_, err := ss.Recv()
				return err
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				ctx, cancel := context.WithCancel(t.Context())
				s, err := client(c).FullDuplexCall(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.Header()
				o.failed(err)
				cancel()
				_, err = s.Recv()
				o.failed(err)
			},
		},
		"echo": {
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				for {
					in, err := ss.Recv()
					if err == io.EOF { //nolint:errorlint // the stream says io.EOF itself
						return nil
					}
					if err != nil {
						return err
					}
					if err := ss.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
						return err
					}
				}
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).FullDuplexCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				in := &testgrpc.StreamingOutputCallRequest{}
				for n := range 4 {
					in.Payload = payload(n * 1000)
					o.failed(s.Send(in))
				}
				o.failed(s.CloseSend())
				o.failed(s.CloseSend())
				o.drain(s)
			},
		},
		"metadata of a stream": {
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				e1 := ss.SetHeader(metadata.Pairs("h", "1"))
				e2 := ss.SendHeader(metadata.Pairs("h", "2"))
				e3 := ss.SetHeader(metadata.Pairs("h", "3"))
				return status.Errorf(codes.Unknown, "%s %v %v %v", heard(ss.Context()), e1, e2, e3)
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).FullDuplexCall(metadata.AppendToOutgoingContext(t.Context(), "a", "b"))
				if err != nil {
					t.Fatal(err)
				}
				o.drain(s)
			},
		},
		"trailers only": {
			service: scripted{duplex: func(ss testgrpc.TestService_FullDuplexCallServer) error {
				ss.SetTrailer(metadata.Pairs("t", "1"))
				return status.Error(codes.Unknown, "no")
			}},
			act: func(t *testing.T, c grpc.ClientConnInterface, o *outcome) {
				s, err := client(c).FullDuplexCall(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				md, err := s.Header()
				o.note("%v %v", len(own(md)), err)
				o.drain(s)
			},
		},
	}
}
