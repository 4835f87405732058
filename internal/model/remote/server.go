package remote

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// Models are the operations on this node's models; serve.Server implements it.
type Models interface {
	Infer(ctx context.Context, r *serve.Request) (*serve.Response, error)
	TextHere(ctx context.Context, name, version string) (engine.TextModel, func(), error)
	InfoHere(ctx context.Context, name, version string) (engine.Info, int, error)
	Await(ctx context.Context, name string, version int) error
	Load(ctx context.Context, name, version string) error
	KeepHere(name string, idle time.Duration) error
}

// A File is an artifact that is sent to another node. *artifact.Sender implements it.
type File interface {
	io.ReadCloser
	// Size returns the number of bytes.
	Size() int64
}

// A Server answers the requests of other nodes.
type Server struct {
	Self   outboard.NodeID
	Models Models
	// Open opens a file of the node's artifacts. At the end of a corrupt file, Read fails.
	Open func(digest string) (File, error)
	// Socket and Credential are as in Options.
	Socket, Credential string
	Log                *slog.Logger
}

// drainTimeout bounds how long a stopping node serves the calls of others. The node also waits that
// long if the pool's state does not confirm the withdrawal of the service.
const drainTimeout = 2 * time.Second

// Run serves other nodes until ctx ends. The tensors of a request stay in shared memory until they
// are copied to the memory of the model's process: Infer of Models does not use them after it has
// returned.
func (s *Server) Run(ctx context.Context, ready func()) error {
	server := fabric.NewServer(fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage), fabric.WithLogger(s.Log),
		fabric.WithDrainTimeout(drainTimeout), fabric.WithBorrowedRequests())
	server.RegisterService(s.service(), s)
	ready()
	return s.run(ctx, server, fabric.WithPerRPCCredentials(offer.Credential(s.Credential)))
}

// Serve offers a service to all programs over the fabric until ctx ends; the interceptors admit the
// callers. limit bounds a message in bytes.
func (s *Server) Serve(ctx context.Context, register func(grpc.ServiceRegistrar), limit int, unary grpc.UnaryServerInterceptor, stream grpc.StreamServerInterceptor) error {
	server := fabric.NewServer(fabric.WithMaxReceive(limit), fabric.WithMaxSend(limit), fabric.WithLogger(s.Log), fabric.WithDrainTimeout(drainTimeout),
		fabric.WithUnaryServerInterceptor(unary), fabric.WithStreamServerInterceptor(stream))
	register(server)
	return s.run(ctx, server)
}

// run offers a server on the node's socket until ctx ends.
func (s *Server) run(ctx context.Context, server *fabric.Server, more ...fabric.Option) error {
	listener, err := fabric.Listen("node:"+s.Socket, append(more, fabric.WithLogger(s.Log))...)
	if err != nil {
		return err
	}
	err = server.Run(ctx, listener)
	server.Stop()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the server was stopped
	}
	return err
}

// service describes the methods of the service. There is no generated code for them, since the
// service's name depends on the node.
func (s *Server) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: serviceName(s.Self), HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unary("Infer", s.infer), unary("Load", s.load), unary("Keep", s.keep), unary("Text", s.text),
		},
		Streams: []grpc.StreamDesc{
			serverStream("ReadFile", s.readFile), serverStream("Generate", s.generate),
		},
	}
}

// unary describes a method with one request and one reply, which only nodes may call.
func unary[Q, A any](name string, f func(context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := checkCaller(ctx); err != nil {
			return nil, err
		}
		request := new(Q)
		if err := decode(request); err != nil {
			return nil, err
		}
		reply, err := f(ctx, request)
		if err != nil {
			return nil, statusOf(err)
		}
		return reply, nil
	}}
}

// serverStream describes a method with one request and many replies, which only nodes may call.
func serverStream[Q any](name string, f func(*Q, grpc.ServerStream) error) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		if err := checkCaller(stream.Context()); err != nil {
			return err
		}
		request := new(Q)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return statusOf(f(request, stream))
	}}
}

// checkCaller refuses callers that are not nodes. The fabric has checked the caller's identity at
// the call's origin.
func checkCaller(ctx context.Context) error {
	if c, ok := fabric.CallerFromContext(ctx); !ok || c.Tenant != Identity {
		return status.Error(codes.PermissionDenied, "only nodes of the pool may call this")
	}
	return nil
}

func (s *Server) infer(ctx context.Context, q *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	r := &serve.Request{
		Model: q.GetModelName(), Version: q.GetModelVersion(), Priority: int(q.GetParameters()["priority"].GetInt64Param()), Local: true,
	}
	p := q.GetParameters()
	r.Alone = p[alone].GetBoolParam()
	r.Sequence = serve.Sequence{
		ID: p[sequenceID].GetStringParam(), Client: p[sequenceClient].GetStringParam(),
		Start: p[sequenceStart].GetBoolParam(), End: p[sequenceEnd].GetBoolParam(),
	}
	if len(q.GetInputs()) != len(q.GetRawInputContents()) {
		return nil, outboard.Errorf(outboard.Protocol, "infer", "a malformed request")
	}
	for i, t := range q.GetInputs() {
		kind, err := model.ParseDataType(t.GetDatatype())
		if err != nil {
			return nil, outboard.Errorf(outboard.Invalid, "infer", "%w", err)
		}
		r.Inputs = append(r.Inputs, model.Tensor{Name: t.GetName(), Type: kind, Shape: t.GetShape(), Data: q.GetRawInputContents()[i]})
	}
	for _, o := range q.GetOutputs() {
		r.Outputs = append(r.Outputs, o.GetName())
	}
	response, err := s.Models.Infer(ctx, r)
	if err != nil {
		return nil, err
	}
	reply := &inference.ModelInferResponse{
		ModelName: response.Model, ModelVersion: strconv.Itoa(response.Version),
		Parameters: map[string]*inference.InferParameter{
			"queue_ns":    {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(response.Times.Queue)}},
			"compute_ns":  {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(response.Times.Compute)}},
			"copy_in_ns":  {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(response.Times.In)}},
			"copy_out_ns": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(response.Times.Out)}},
		},
	}
	for i := range response.Outputs {
		t := &response.Outputs[i]
		reply.Outputs = append(reply.Outputs, &inference.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape})
		reply.RawOutputContents = append(reply.RawOutputContents, t.Data)
	}
	return reply, nil
}

func (s *Server) load(ctx context.Context, q *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	version, err := strconv.Atoi(q.GetVersion())
	if err == nil {
		err = s.Models.Await(ctx, q.GetName(), version)
	}
	if err == nil {
		err = s.Models.Load(ctx, q.GetName(), "")
	}
	return &inference.ModelReadyResponse{Ready: err == nil}, err
}

func (s *Server) keep(_ context.Context, q *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	idle := time.Duration(q.GetParameters()[keepIdle].GetInt64Param())
	return &inference.RepositoryModelUnloadResponse{}, s.Models.KeepHere(q.GetModelName(), idle)
}

// filePart is the size of a message with a part of a file at most, in bytes.
const filePart = 1 << 20

func (s *Server) readFile(q *wrapperspb.StringValue, stream grpc.ServerStream) error {
	f, err := s.Open(q.GetValue())
	if err != nil {
		return err
	}
	defer f.Close()
	if err := stream.SendMsg(wrapperspb.Bytes(nil)); err != nil {
		return err
	}
	for left := f.Size(); ; {
		part := make([]byte, min(filePart, max(left, 1))) // the last part is empty, and ends the file
		n, err := f.Read(part)
		if left -= int64(n); n > 0 {
			if err := stream.SendMsg(wrapperspb.Bytes(part[:n])); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
