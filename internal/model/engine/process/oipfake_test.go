package process

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// An oipFake is a server of the Open Inference Protocol over gRPC that executes a model by an engine of
// this process, as Triton does: it lists its models, and the reason for which one was not loaded.
type oipFake struct {
	model      engine.TensorModel
	failure    error // of loading the model
	names      []string
	extensions []string
	batch      int32                         // of the configuration, -1 for a server without the extension
	typed      bool                          // outputs are typed where the protocol has typed contents
	listed     bool                          // the server lists its models
	apart      bool                          // in a service of its own, as MLServer does
	reply      *inference.ModelInferResponse // to all requests, if there is one
	crash      func()                        // ends the server, which executes no requests; nil for none

	mu        sync.Mutex
	sequences []map[string]*inference.InferParameter // of the requests
	cancelled int
}

func newOIPFake(m engine.TensorModel) *oipFake {
	return &oipFake{model: m, names: []string{"fake"}, extensions: []string{"sequence"}, batch: -1, listed: true}
}

// serve serves at a listener until the test ends, or stop is called.
func (f *oipFake) serve(l net.Listener) (stop func()) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxTensorMessage), grpc.MaxSendMsgSize(maxTensorMessage))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("ServerMetadata", f.server), method("ModelReady", f.ready), method("ModelMetadata", f.metadata),
			method("ModelConfig", f.config), method("ModelInfer", f.infer), method("RepositoryIndex", f.index),
		},
	}, f)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.model_repository.ModelRepositoryService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{method("RepositoryIndex", f.indexApart)},
	}, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	return func() {
		server.Stop()
		<-done
	}
}

func method[Q, A any](name string, f func(context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		q := new(Q)
		if err := decode(q); err != nil {
			return nil, err
		}
		return f(ctx, q)
	}}
}

var errUnimplemented = status.Error(codes.Unimplemented, "no such method")

func (f *oipFake) server(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: "fake", Extensions: f.extensions}, nil
}

func (f *oipFake) ready(_ context.Context, q *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	return &inference.ModelReadyResponse{Ready: f.failure == nil && slices.Contains(f.names, q.GetName())}, nil
}

func (f *oipFake) index(context.Context, *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	return f.list(f.listed && !f.apart)
}

func (f *oipFake) indexApart(context.Context, *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	return f.list(f.listed && f.apart)
}

func (f *oipFake) list(implemented bool) (*inference.RepositoryIndexResponse, error) {
	if !implemented {
		return nil, errUnimplemented
	}
	reply := &inference.RepositoryIndexResponse{}
	for _, name := range f.names {
		entry := &inference.RepositoryIndexResponse_ModelIndex{Name: name, Version: "1", State: "READY"}
		if f.failure != nil {
			entry.State, entry.Reason = "UNAVAILABLE", f.failure.Error()
		}
		reply.Models = append(reply.Models, entry)
	}
	return reply, nil
}

func (f *oipFake) config(context.Context, *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	if f.batch < 0 {
		return nil, errUnimplemented
	}
	return &inference.ModelConfigResponse{Config: &inference.ModelConfig{MaxBatchSize: f.batch}}, nil
}

func (f *oipFake) metadata(context.Context, *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	info := f.model.Info()
	reply := &inference.ModelMetadataResponse{Name: f.names[0], Platform: info.Platform}
	for _, s := range info.Inputs {
		reply.Inputs = append(reply.Inputs, &inference.ModelMetadataResponse_TensorMetadata{Name: s.Name, Datatype: s.Type.String(), Shape: s.Shape})
	}
	for _, s := range info.Outputs {
		reply.Outputs = append(reply.Outputs, &inference.ModelMetadataResponse_TensorMetadata{Name: s.Name, Datatype: s.Type.String(), Shape: s.Shape})
	}
	return reply, nil
}

func (f *oipFake) infer(ctx context.Context, q *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	f.mu.Lock()
	f.sequences = append(f.sequences, q.GetParameters())
	f.mu.Unlock()
	if f.crash != nil {
		f.crash()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.reply != nil {
		return f.reply, nil
	}
	var inputs []model.Tensor
	for i, in := range q.GetInputs() {
		kind, err := model.ParseDataType(in.GetDatatype())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		inputs = append(inputs, model.Tensor{Name: in.GetName(), Type: kind, Shape: in.GetShape(), Data: q.GetRawInputContents()[i]})
	}
	var names []string
	for _, out := range q.GetOutputs() {
		names = append(names, out.GetName())
	}
	outputs, err := f.model.Infer(ctx, inputs, names)
	if ctx.Err() != nil {
		f.mu.Lock()
		f.cancelled++
		f.mu.Unlock()
	}
	if err != nil {
		code := codes.Internal
		if outboard.KindOf(err) == outboard.Invalid {
			code = codes.InvalidArgument
		}
		return nil, status.Error(code, err.Error())
	}
	return f.response(outputs)
}

// response returns the outputs of a request, raw or typed.
func (f *oipFake) response(outputs []model.Tensor) (*inference.ModelInferResponse, error) {
	reply := &inference.ModelInferResponse{ModelName: f.names[0], ModelVersion: "1"}
	for i := range outputs {
		t := &outputs[i]
		out := &inference.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape}
		if f.typed && t.Type != model.FP16 && t.Type != model.BF16 {
			var err error
			if out.Contents, err = inference.ContentsOf(t); err != nil {
				return nil, err
			}
		} else {
			reply.RawOutputContents = append(reply.RawOutputContents, t.Data)
		}
		reply.Outputs = append(reply.Outputs, out)
	}
	return reply, nil
}

// A fakeProcess is a fake server that was started.
type fakeProcess struct {
	stop func()
	once sync.Once
	done chan struct{}
}

func (p *fakeProcess) Kill() {
	p.once.Do(func() {
		p.stop()
		close(p.done)
	})
}

func (p *fakeProcess) Wait() error {
	<-p.done
	return nil
}

// startOIPFake starts fake servers with the model of a file, by a command of its port and the file.
func startOIPFake(change func(*oipFake)) func(command, _ []string) (Process, error) {
	return func(command, _ []string) (Process, error) {
		l, err := net.Listen("tcp", "127.0.0.1:"+command[0])
		if err != nil {
			return nil, err
		}
		f := newOIPFake(nil)
		loaded, err := new(onnx.Engine).Load(context.Background(), engine.Source{Path: command[1], Folder: filepath.Dir(command[1])}, engine.Options{})
		if err != nil {
			f.failure = err
		} else {
			f.model = loaded.(engine.TensorModel)
		}
		change(f)
		stop := f.serve(l)
		return &fakeProcess{done: make(chan struct{}), stop: func() {
			if f.model != nil {
				_ = f.model.Close()
			}
			stop()
		}}, nil
	}
}

// loadOIP loads the model of a fake server that runs already.
func loadOIP(t *testing.T, f *oipFake, server Server) (engine.Model, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.serve(l))
	server.Kind, server.URL = kindOIP, "grpc://"+l.Addr().String()
	e := &Engine{Servers: map[string]Server{"x": server}}
	m, err := e.Load(t.Context(), engine.Source{}, engine.Options{Server: "x"})
	if err == nil {
		t.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}
