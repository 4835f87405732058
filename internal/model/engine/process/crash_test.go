package process

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// startCrashing starts a server for text that ends when it is to generate a text.
func startCrashing(command, _ []string) (Process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:"+command[0])
	if err != nil {
		return nil, err
	}
	p := &fakeProcess{done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"m","max_model_len":8}]}`))
	})
	mux.HandleFunc("/v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		p.Kill()
	})
	server := httptest.NewUnstartedServer(mux)
	server.Listener = l
	server.Start()
	p.stop = func() {
		server.CloseClientConnections()
		_ = l.Close()
	}
	return p, nil
}

// startWorker starts a worker with a server, as a node does: the worker ends with the server.
func startWorker(t *testing.T, server Server, start func(command, environment []string) (Process, error), path string) *worker.Worker {
	t.Helper()
	w, err := worker.Start(t.Context(), worker.Options{
		Launch: helper.Goroutine(func(ctx context.Context, socket *os.File) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			e := &Engine{Servers: map[string]Server{"x": server}, Start: start, Exited: cancel}
			return worker.Run(ctx, socket, worker.ProcessOptions{Engines: []engine.Engine{e}})
		}),
		Engine: "process", Source: engine.Source{Path: path}, Options: engine.Options{Server: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// A call that a server was executing when it ended may be the cause, as one of any other model's
// process: it is not tried again for ever.
func TestCrashOfServer(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		w := startWorker(t, Server{Kind: "vllm", Command: []string{"{port}"}}, startCrashing, "")
		_, err := w.Generate(t.Context(), engine.Generation{Prompt: []int32{1}, MaxTokens: 2, LogProbs: -1}, func(engine.Token) error { return nil })
		if !engine.IsCrash(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("tensors", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := os.WriteFile(path, onnxfile.Unary("Identity", model.Uint8, "batch", 2).Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		var server *fakeProcess
		start := startOIPFake(func(f *oipFake) { f.crash = func() { go server.Kill() } })
		w := startWorker(t, Server{Kind: kindOIP, Command: []string{"{port}", "{model}"}}, func(command, environment []string) (Process, error) {
			p, err := start(command, environment)
			server, _ = p.(*fakeProcess)
			return p, err
		}, path)
		_, err := w.Infer(t.Context(), []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1, 2}, Data: []byte{1, 2}}}, nil)
		if !engine.IsCrash(err) {
			t.Errorf("got %v", err)
		}
	})
}
