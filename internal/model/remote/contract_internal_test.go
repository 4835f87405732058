package remote

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/need"
)

const testNode = outboard.NodeID("ketch")

// A loaded is the one model of another node, called through the fabric. Close unloads it there.
type loaded struct {
	engine.TextModel // the remote end, for text
	peers            *Peers
	inner            engine.Model
}

func (m *loaded) Info() engine.Info { return m.inner.Info() }
func (m *loaded) Close() error      { return m.inner.Close() }

// Infer implements engine.TensorModel.
func (m *loaded) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	r, err := m.peers.Infer(ctx, testNode, &serve.Request{Model: "m", Inputs: inputs, Outputs: outputs})
	if err != nil {
		return nil, err
	}
	return r.Outputs, nil
}

// oneModel is a node with one model.
type oneModel struct{ engine.Model }

func (m oneModel) Infer(ctx context.Context, r *serve.Request) (*serve.Response, error) {
	outputs, err := m.Model.(engine.TensorModel).Infer(ctx, r.Inputs, r.Outputs) //nolint:forcetypeassert // the test's
	return &serve.Response{Model: r.Model, Version: 1, Outputs: outputs}, err
}

func (m oneModel) TextHere(context.Context, string, string) (engine.TextModel, func(), error) {
	return m.Model.(engine.TextModel), func() {}, nil //nolint:forcetypeassert // the test's
}

func (m oneModel) InfoHere(context.Context, string, string) (engine.Info, int, error) {
	return m.Info(), 1, nil
}
func (oneModel) Await(context.Context, string, int) error   { return nil }
func (oneModel) Load(context.Context, string, string) error { return nil }
func (oneModel) KeepHere(string, time.Duration) error       { return nil }

// serveModel serves a model by the name of another node and returns it as the pool's nodes see it.
func serveModel(t *testing.T, m engine.Model) *loaded {
	t.Helper()
	network := new(fabric.Network)
	listener, err := fabric.Listen("inproc:"+string(testNode), fabric.WithNetwork(network))
	if err != nil {
		t.Fatal(err)
	}
	server := fabric.NewServer(fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage))
	node := &Server{Self: testNode, Models: oneModel{m}}
	server.RegisterService(calledByNode(node.service()), node)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()
	conn, err := fabric.Dial("inproc:"+string(testNode), fabric.WithNetwork(network), fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		<-ended
	})
	p := &Peers{conn: conn}
	return &loaded{p.Text(testNode, "m", 1, m.Info()), p, m}
}

// calledByNode makes all calls of a service those of a node, as the fabric does between nodes.
func calledByNode(service *grpc.ServiceDesc) *grpc.ServiceDesc {
	identify := func(ctx context.Context) context.Context {
		return peer.NewContext(ctx, &peer.Peer{AuthInfo: fabric.Caller{Tenant: Identity}})
	}
	for i := range service.Methods {
		handle := service.Methods[i].Handler
		service.Methods[i].Handler = func(server any, ctx context.Context, decode func(any) error, more grpc.UnaryServerInterceptor) (any, error) {
			return handle(server, identify(ctx), decode, more)
		}
	}
	for i := range service.Streams {
		handle := service.Streams[i].Handler
		service.Streams[i].Handler = func(server any, stream grpc.ServerStream) error {
			return handle(server, identified{stream, identify(stream.Context())})
		}
	}
	return service
}

type identified struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // of the stream
}

func (s identified) Context() context.Context { return s.ctx }

// elsewhere is an engine on another node.
type elsewhere struct {
	engine.Engine
	t *testing.T
}

func (e elsewhere) Load(ctx context.Context, s engine.Source, o engine.Options) (engine.Model, error) {
	m, err := e.Engine.Load(ctx, s, o)
	if err != nil {
		return nil, err
	}
	return serveModel(e.t, m), nil
}

// The contract of models for tensors holds through the fabric.
func TestTensorContract(t *testing.T) {
	_, err := onnx.Embedded()
	need.Require(t, "onnxruntime", outboard.KindOf(err) != outboard.NotFound, "make build")
	(&enginetest.Tensors{Engine: elsewhere{&onnx.Engine{}, t}, Load: func(t *testing.T, g *onnxfile.Graph) engine.Source {
		t.Helper()
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, g.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		return engine.Source{Path: path}
	}}).Test(t)
}

// The contract of models for text holds through the fabric.
func TestTextContract(t *testing.T) {
	_, err := llama.Embedded()
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "make build")
	enginetest.Text(t, func(t *testing.T, s engine.Source, o engine.Options) engine.TextModel {
		t.Helper()
		m, err := (llama.Engine{}).Load(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		return serveModel(t, m)
	})
}

// Only nodes of the pool may call a node's models.
func TestCallerIsChecked(t *testing.T) {
	for name, method := range map[string]func() error{
		"unary": func() error {
			_, err := unary("Load", (&Server{}).load).Handler(nil, t.Context(), nil, nil)
			return err
		},
		"stream": func() error {
			return serverStream("Generate", (&Server{}).generate).Handler(nil, identified{nil, t.Context()})
		},
	} {
		if err := method(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}
