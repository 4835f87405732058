package peer

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/planner"
)

// Handler serves the calls of the tenant's other processes.
type Handler interface {
	RunStep(ctx context.Context, call engine.FunctionCall) (engine.Outcome, error)
	ReadFile(ctx context.Context, digest string) ([]byte, error)
	StoreFile(ctx context.Context, owner string, content []byte) error
	Warm(ctx context.Context, f planner.Target) error
	Refresh(ctx context.Context, id engine.ID) error
	Counts(app string) []Counts
	Progress() map[string]app.Progress
	LocateSteps(id engine.ID) map[string]outboard.NodeID
	Logs(ctx context.Context, q *LogQuery, send func([]client.LogLine) error) error
}

// Options identify the serving process.
type Options struct {
	Tenant string
	Node   outboard.NodeID
	// Socket is the path of the node's socket for calls, Credential the tenant's key for it.
	Socket, Credential string
	Log                *slog.Logger
}

// Serve serves calls for the process of a node until ctx ends.
func Serve(ctx context.Context, ready func(), o Options, h Handler) error {
	listener, err := fabric.Listen("node:"+o.Socket, fabric.WithLogger(o.Log), fabric.WithPerRPCCredentials(offer.Credential(o.Credential)))
	if err != nil {
		return err
	}
	server := fabric.NewServer(fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage), fabric.WithLogger(o.Log))
	server.RegisterService(service(o.Tenant, o.Node, h), h)
	ready()
	err = server.Run(ctx, listener)
	server.Stop()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the tenant's other processes: %w", err)
	}
	return nil
}

// service returns the description of peer.proto's Process. There is no generated code for it, since
// the service's name depends on the tenant and the node.
func service(tenant string, node outboard.NodeID, h Handler) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{
		ServiceName: serviceName(tenant, node), HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unary("RunStep", func(ctx context.Context, q *StepRequest) (*StepReply, error) {
				o, err := h.RunStep(ctx, q.call())
				return stepReply(&o, err), nil
			}),
			unary("ReadFile", func(ctx context.Context, q *FileRequest) (*File, error) {
				content, err := h.ReadFile(ctx, q.GetDigest())
				return &File{Content: content}, err
			}),
			unary("StoreFile", func(ctx context.Context, q *StoreFileRequest) (*StoreFileReply, error) {
				return &StoreFileReply{}, h.StoreFile(ctx, q.GetOwner(), q.GetContent())
			}),
			unary("WarmFunction", func(ctx context.Context, q *FunctionRef) (*WarmFunctionReply, error) {
				return &WarmFunctionReply{}, h.Warm(ctx, planner.Target{App: q.GetApp(), Version: int(q.GetVersion()), Function: q.GetFunction()})
			}),
			unary("RefreshExecution", func(ctx context.Context, q *ExecutionRef) (*RefreshExecutionReply, error) {
				return &RefreshExecutionReply{}, h.Refresh(ctx, engine.ID(q.GetId()))
			}),
			unary("CountCalls", func(_ context.Context, q *AppFilter) (*CallCounts, error) {
				return countsMessage(h.Counts(q.GetApp())), nil
			}),
			unary("GetProgress", func(context.Context, *GetProgressRequest) (*Progress, error) {
				return progressMessage(h.Progress()), nil
			}),
			unary("LocateSteps", func(_ context.Context, q *ExecutionRef) (*StepLocations, error) {
				return locationsMessage(h.LocateSteps(engine.ID(q.GetId()))), nil
			}),
		},
		Streams: []grpc.StreamDesc{{StreamName: "StreamLogs", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return streamLogs(s, h) }}},
	}
	onlyTenant(d, tenant)
	for _, method := range version1 {
		d.Methods = append(d.Methods, refuseVersion1(method))
	}
	return d
}

func progressMessage(all map[string]app.Progress) *Progress {
	m := &Progress{Apps: map[string]*AppProgress{}}
	for name, p := range all {
		m.Apps[name] = &AppProgress{Built: int64(p.Built), Serving: int64(p.Serving), Failure: p.Failure}
	}
	return m
}

func locationsMessage(all map[string]outboard.NodeID) *StepLocations {
	m := &StepLocations{Nodes: map[string]string{}}
	for path, node := range all {
		m.Nodes[path] = string(node)
	}
	return m
}

// unary returns the description of a method with one request and one reply.
func unary[Q, A any](name string, f func(context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Q)
		if err := decode(request); err != nil {
			return nil, err
		}
		reply, err := f(ctx, request)
		if err != nil {
			return nil, status.Error(codeOf(err), err.Error())
		}
		return reply, nil
	}}
}

// version1 are the methods of version 1 of the protocol.
var version1 = []string{"Call", "Read", "Keep", "Warm", "Look", "Counts", "Stages", "Places"}

// refuseVersion1 returns a method that tells a process with an older program why its calls are
// refused.
func refuseVersion1(method string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: method, Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		return nil, status.Error(codes.FailedPrecondition, "this node has a newer program, whose processes don't answer calls of the older one: upgrade the calling node")
	}}
}

func streamLogs(s grpc.ServerStream, h Handler) error {
	var q LogQuery
	if err := s.RecvMsg(&q); err != nil {
		return err
	}
	return h.Logs(s.Context(), &q, func(lines []client.LogLine) error { return s.SendMsg(logBatch(lines)) })
}

// onlyTenant has the methods of a service refuse all callers except the tenant's own processes,
// before they read the request.
func onlyTenant(d *grpc.ServiceDesc, tenant string) {
	for i, m := range d.Methods {
		d.Methods[i].Handler = func(s any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
			if err := checkCaller(ctx, tenant); err != nil {
				return nil, err
			}
			return m.Handler(s, ctx, decode, next)
		}
	}
	for i, m := range d.Streams {
		d.Streams[i].Handler = func(srv any, s grpc.ServerStream) error {
			if err := checkCaller(s.Context(), tenant); err != nil {
				return err
			}
			return m.Handler(srv, s)
		}
	}
}

// checkCaller refuses callers that are not processes of the tenant. The fabric has checked the
// caller's identity where the call began.
func checkCaller(ctx context.Context, tenant string) error {
	if c, ok := fabric.CallerFromContext(ctx); !ok || c.Tenant != identityPrefix+tenant {
		return status.Error(codes.PermissionDenied, "only processes of the tenant may call this")
	}
	return nil
}

// identityPrefix is the prefix of the identity of a tenant's process.
const identityPrefix = "tenant:"

func codeOf(err error) codes.Code {
	switch outboard.KindOf(err) {
	case outboard.NotFound:
		return codes.NotFound
	case outboard.Busy:
		return codes.ResourceExhausted
	case outboard.Invalid:
		return codes.InvalidArgument
	default:
		return codes.Unavailable
	}
}
