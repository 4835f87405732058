package models

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	tensor "github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/repository"
	serving "github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// sizeModel is an engine and its model: the output "y" is the size of the input "x".
type sizeModel struct{ engine.TensorModel }

func (sizeModel) Name() string    { return "fake" }
func (sizeModel) Version() string { return "1" }
func (sizeModel) Close() error    { return nil }

func (m sizeModel) Load(context.Context, engine.Source, engine.Options) (engine.Model, error) {
	return m, nil
}

func (sizeModel) Info() engine.Info {
	return engine.Info{
		Inputs:  []tensor.Signature{{Name: "x", Type: tensor.Uint8, Shape: []int64{-1}}},
		Outputs: []tensor.Signature{{Name: "y", Type: tensor.Uint8, Shape: []int64{1}}},
	}
}

func (sizeModel) Infer(_ context.Context, inputs []tensor.Tensor, _ []string) ([]tensor.Tensor, error) {
	return []tensor.Tensor{{Name: "y", Type: tensor.Uint8, Shape: []int64{1}, Data: []byte{byte(len(inputs[0].Data))}}}, nil
}

// A fakeNode serves one model, and bypasses to it.
type fakeNode struct {
	oip.Models
	worker *worker.Worker
	calls  atomic.Int32 // that went through the node
	asked  atomic.Int32 // requests for a bypass

	mu   sync.Mutex
	last *worker.Bypass
	held chan struct{} // bypasses are granted once it is closed; nil: at once
}

func (n *fakeNode) Infer(ctx context.Context, r *serving.Request) (*serving.Response, error) {
	n.calls.Add(1)
	outputs, err := n.worker.Infer(ctx, r.Inputs, r.Outputs)
	return &serving.Response{Model: r.Model, Version: 1, Outputs: outputs}, err
}

func (n *fakeNode) Describe(_ context.Context, name, _ string) (*serving.Description, error) {
	return &serving.Description{Version: &repository.Version{Name: name}, Info: n.worker.Info()}, nil
}

// grant opens a bypass for the process at the other end of a connection.
func (n *fakeNode) grant(ctx context.Context, conn *ipc.Conn) {
	defer conn.Close()
	m, err := conn.Receive(ctx)
	if err != nil {
		return
	}
	n.asked.Add(1)
	n.mu.Lock()
	held := n.held
	n.mu.Unlock()
	if held != nil {
		<-held
	}
	var r worker.BypassRequest
	_ = m.Decode(&r)
	if r.Key != "key" || r.Model != "m" {
		_ = conn.Send(worker.TypeBypassEnded, ipc.Reason{})
		return
	}
	b, err := n.worker.OpenBypass(ctx, r.Size, time.Minute)
	if err != nil {
		_ = conn.Send(worker.TypeBypassEnded, ipc.ReasonOf(err))
		return
	}
	b.SetOpen(true)
	n.mu.Lock()
	n.last = b
	n.mu.Unlock()
	_ = conn.Send(worker.TypeBypassGranted, worker.BypassGranted{Timeout: time.Minute}, b.Files()...)
	_, _ = conn.Receive(ctx) // until the process hangs up
	_ = b.Close(ctx, true)
}

// bypass returns the last bypass that was granted.
func (n *fakeNode) bypass() *worker.Bypass {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// serveModel returns a node, and the models of a process of a tenant.
func serveModel(t *testing.T) (*fakeNode, *Models) {
	t.Helper()
	launch := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		return worker.Run(ctx, socket, worker.ProcessOptions{Engines: []engine.Engine{sizeModel{}}})
	})
	w, err := worker.Start(t.Context(), worker.Options{Launch: launch, Engine: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{worker: w}
	dir := t.TempDir()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "m"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	oip.New(oip.Options{Models: n}).RegisterGRPC(server)
	go func() { _ = server.Serve(listener) }() // Stop ends it
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "m"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	bypasses, err := ipc.Listen(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	var granting sync.WaitGroup
	granting.Go(func() {
		for {
			socket, err := bypasses.AcceptUnix()
			if err != nil {
				return
			}
			granting.Go(func() { n.grant(context.Background(), ipc.New(socket, worker.BypassOptions)) })
		}
	})
	m := New(conn)
	m.bypasses = newBypasses(filepath.Join(dir, "b"), "key", slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		_ = m.Close()
		_ = conn.Close()
		server.Stop()
		_ = bypasses.Close()
		granting.Wait()
		_ = w.Close()
	})
	return n, m
}

// infer computes with the model, and reports whether the call went through the node.
func (n *fakeNode) infer(t *testing.T, m *Models, size int) (byNode bool) {
	t.Helper()
	opened, err := m.Open(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	before := n.calls.Load()
	x := function.ModelTensor{Name: "x", Type: "UINT8", Shape: []int64{int64(size)}, Data: make([]byte, size)}
	y, err := opened.(function.Model).Infer(t.Context(), []function.ModelTensor{x})
	if err != nil || len(y) != 1 || y[0].Name != "y" || y[0].Type != "UINT8" || len(y[0].Data) != 1 || y[0].Data[0] != byte(size) {
		t.Fatalf("%+v, %v", y, err)
	}
	return n.calls.Load() > before
}

// awaitBypass calls until a call does not go through the node.
func (n *fakeNode) awaitBypass(t *testing.T, m *Models, size int) {
	t.Helper()
	for range 60_000 {
		if !n.infer(t, m, size) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("all calls go through the node")
}

// Calls reach the worker without the node once a first one went through it. No call is lost when the
// bypass ends, and the next one is larger if it has to be.
func TestBypass(t *testing.T) {
	n, m := serveModel(t)
	if !n.infer(t, m, 3) {
		t.Error("the first call did not go through the node")
	}
	n.awaitBypass(t, m, 3)
	for range 10 {
		if n.infer(t, m, 5) {
			t.Error("a call went through the node")
		}
	}
	first := n.bypass()
	_ = first.Close(t.Context(), false)
	if !n.infer(t, m, 7) {
		t.Error("a call went through a bypass that has ended")
	}
	n.awaitBypass(t, m, 7)
	if !n.infer(t, m, 200<<10) {
		t.Error("a call went through a bypass that is too small for it")
	}
	n.awaitBypass(t, m, 200<<10)
	if n.bypass() == first {
		t.Error("the bypass that has ended is in use")
	}
}

// While several calls are in progress they go through the node, which forms batches of them.
func TestConcurrentCallsGoThroughNode(t *testing.T) {
	n, m := serveModel(t)
	n.infer(t, m, 3)
	n.awaitBypass(t, m, 3)
	link, done := m.bypasses.of("m").begin()
	if link == nil {
		t.Error("a sole call may not use the bypass")
	}
	if !n.infer(t, m, 3) {
		t.Error("a second call at a time did not go through the node")
	}
	done()
	n.awaitBypass(t, m, 3)
}

// A node that grants no bypass is not asked for each call.
func TestRefusedBypassIsNotAskedForEachCall(t *testing.T) {
	n, m := serveModel(t)
	m.bypasses.credential = "none"
	began := time.Now()
	for range 100 {
		if !n.infer(t, m, 1) {
			t.Error("a call did not go through the node")
		}
	}
	m.bypasses.close()
	if asked, most := n.asked.Load(), int32(time.Since(began)/bypassRetry)+1; asked > most {
		t.Errorf("asked %d times, at most %d are right", asked, most)
	}
	if !n.infer(t, m, 1) {
		t.Error("a call did not go through the node")
	}
}

// A node that takes long to grant a bypass gets no second request for it meanwhile: the second bypass
// would end the first one under its calls.
func TestBypassIsAskedForOnce(t *testing.T) {
	n, m := serveModel(t)
	held := make(chan struct{})
	n.mu.Lock()
	n.held = held
	n.mu.Unlock()
	for range 10 {
		n.infer(t, m, 1)
		b := m.bypasses.of("m")
		b.mu.Lock()
		b.asked = time.Time{}
		b.mu.Unlock()
	}
	close(held)
	n.awaitBypass(t, m, 1)
	m.bypasses.close()
	if asked := n.asked.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
