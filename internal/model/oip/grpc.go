package oip

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// ServiceName is the name of the protocol's service over gRPC.
const ServiceName = "inference.GRPCInferenceService"

// RegisterGRPC registers the protocol's service with a gRPC server or a server of the fabric, whose
// interceptors admit the callers. Options.Allow and Count get the contexts of the calls.
func (h *Handler) RegisterGRPC(to grpc.ServiceRegistrar) {
	s := &grpcService{h}
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName, HandlerType: (*any)(nil), Metadata: "inference.proto",
		Methods: []grpc.MethodDesc{
			unary("ServerLive", s.serverLive), unary("ServerReady", s.serverReady), unary("ServerMetadata", s.serverMetadata),
			unary("ModelReady", s.modelReady), unary("ModelMetadata", s.modelMetadata), unary("ModelInfer", s.modelInfer),
			unary("ModelConfig", s.modelConfig), unary("ModelStatistics", s.modelStatistics),
			unary("RepositoryIndex", s.repositoryIndex), unary("RepositoryModelLoad", s.modelLoad), unary("RepositoryModelUnload", s.modelUnload),
			unary("SystemSharedMemoryStatus", s.sharedMemoryStatus), unary("SystemSharedMemoryRegister", s.sharedMemoryRegister),
			unary("SystemSharedMemoryUnregister", s.sharedMemoryUnregister),
		},
		Streams: []grpc.StreamDesc{{StreamName: "ModelStreamInfer", ServerStreams: true, ClientStreams: true, Handler: s.modelStreamInfer}},
	}, s)
}

// A grpcService answers the calls of the protocol's service.
type grpcService struct{ *Handler }

// unary describes a method with one request and one response.
func unary[Q, A any](name string, f func(context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		request := new(Q)
		m, ok := any(request).(proto.Message)
		if !ok {
			return nil, status.Errorf(codes.Internal, "%T is no message", request)
		}
		message := bounded.NewMessage(m)
		if err := decode(message); err != nil {
			return nil, err
		}
		if err := message.Refused(); err != nil {
			return nil, grpcError(err)
		}
		handle := func(ctx context.Context, q any) (any, error) {
			reply, err := f(ctx, q.(*Q)) //nolint:errcheck,forcetypeassert // it is request
			if err != nil {
				return nil, grpcError(err)
			}
			return reply, nil
		}
		if intercept == nil {
			return handle(ctx, request)
		}
		return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + ServiceName + "/" + name}, handle)
	}}
}

// grpcCodes are the status codes of Triton, which reports a full queue as unavailable.
//
//nolint:gochecknoglobals // a table
var grpcCodes = map[outboard.Kind]codes.Code{
	outboard.Invalid: codes.InvalidArgument, outboard.Protocol: codes.InvalidArgument, outboard.NotFound: codes.NotFound,
	outboard.Denied: codes.PermissionDenied, outboard.Conflict: codes.AlreadyExists, outboard.Exhausted: codes.Unavailable,
	outboard.Busy: codes.Unavailable, outboard.Unreachable: codes.Unavailable, outboard.SessionLost: codes.Unavailable,
	outboard.NoDevice: codes.Unavailable,
}

// grpcError returns the gRPC status of an error.
func grpcError(err error) error {
	code, ok := grpcCodes[outboard.KindOf(err)]
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	default:
		code = codes.Internal
	}
	return status.Error(code, err.Error())
}

// RefusalStatus returns the status for a caller that is not admitted.
func RefusalStatus(err error) error {
	switch outboard.KindOf(err) {
	case outboard.Denied:
		return status.Error(codes.Unauthenticated, err.Error())
	case outboard.Busy:
		return status.Error(codes.ResourceExhausted, err.Error())
	default:
		return grpcError(err)
	}
}

func (s *grpcService) serverLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: true}, nil
}

func (s *grpcService) serverReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: true}, nil
}

func (s *grpcService) serverMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: "outboard", Version: s.opts.Version, Extensions: s.extensions()}, nil
}

func (s *grpcService) modelReady(ctx context.Context, q *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	if err := s.opts.Allow(ctx, q.GetName()); err != nil {
		return nil, err
	}
	ready, err := s.opts.Models.Ready(q.GetName(), q.GetVersion())
	if outboard.KindOf(err) == outboard.NotFound {
		return &inference.ModelReadyResponse{}, nil // as Triton answers
	}
	return &inference.ModelReadyResponse{Ready: ready}, err
}

func (s *grpcService) modelMetadata(ctx context.Context, q *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	if err := s.opts.Allow(ctx, q.GetName()); err != nil {
		return nil, err
	}
	d, err := s.opts.Models.Describe(ctx, q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	return &inference.ModelMetadataResponse{
		Name: d.Version.Name, Versions: d.Versions, Platform: d.Info.Platform, Inputs: tensorMessages(d.Info.Inputs), Outputs: tensorMessages(d.Info.Outputs),
	}, nil
}

func tensorMessages(list []model.Signature) []*inference.ModelMetadataResponse_TensorMetadata {
	all := make([]*inference.ModelMetadataResponse_TensorMetadata, len(list))
	for i := range list {
		all[i] = &inference.ModelMetadataResponse_TensorMetadata{Name: list[i].Name, Datatype: list[i].Type.String(), Shape: list[i].Shape}
	}
	return all
}
