package process

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/need"
)

// saveONNX writes a graph to a folder of its own.
func saveONNX(t *testing.T, g *onnxfile.Graph) engine.Source {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "model.onnx")
	if err := os.WriteFile(path, g.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	return engine.Source{Path: path, Folder: folder}
}

func needONNX(t *testing.T) {
	t.Helper()
	_, err := onnx.Embedded()
	need.Require(t, "onnxruntime", outboard.KindOf(err) != outboard.NotFound, "make build")
}

// TestTensorContract holds this engine to the contract of models for tensors, with fake servers that it
// starts and that answer with raw and with typed contents.
func TestTensorContract(t *testing.T) {
	needONNX(t)
	for name, typed := range map[string]bool{"raw": false, "typed": true} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{
				Servers: map[string]Server{"x": {Kind: kindOIP, Command: []string{"{port}", "{model}"}}},
				Start:   startOIPFake(func(f *oipFake) { f.typed = typed }),
			}
			(&enginetest.Tensors{Engine: e, Options: engine.Options{Server: "x"}, Load: saveONNX, Remote: true}).Test(t)
		})
	}
}

//go:embed testdata/network.py
var mlserverNetwork []byte

// TestMLServer holds this engine to the contract with a real MLServer, where the variable
// OUTBOARD_TEST_MLSERVER has the path of the program mlserver, in an environment with onnxruntime.
func TestMLServer(t *testing.T) {
	program := os.Getenv("OUTBOARD_TEST_MLSERVER")
	if program == "" {
		t.Skip("OUTBOARD_TEST_MLSERVER has no path of MLServer")
	}
	e := &Engine{
		Servers: map[string]Server{"x": {
			Kind: kindOIP, Command: []string{program, "start", "{folder}"},
			Environment: map[string]string{
				"MLSERVER_HOST": "127.0.0.1", "MLSERVER_GRPC_PORT": "{port}", "MLSERVER_HTTP_PORT": "{port2}", "MLSERVER_METRICS_PORT": "{port3}",
				"MLSERVER_PARALLEL_WORKERS": "0", "PYTHONPATH": "{folder}",
			},
		}},
		Start: start,
	}
	load := func(t *testing.T, g *onnxfile.Graph) engine.Source {
		source := saveONNX(t, g)
		settings, err := json.Marshal(map[string]any{"name": "network", "implementation": "network.Network", "parameters": map[string]any{"uri": source.Path}})
		if err = errors.Join(err, os.WriteFile(filepath.Join(source.Folder, "model-settings.json"), settings, 0o600),
			os.WriteFile(filepath.Join(source.Folder, "network.py"), mlserverNetwork, 0o600)); err != nil {
			t.Fatal(err)
		}
		return source
	}
	suite := &enginetest.Tensors{Engine: e, Options: engine.Options{Server: "x"}, Load: load, Remote: true, Silent: true}
	// MLServer has no BF16, and ONNX Runtime's strings are UTF-8 in Python.
	suite.Without = []model.DataType{model.BF16, model.Bytes}
	suite.Test(t)
}

// A doubler is a model whose output is its input twice, after which it waits if the input is 1.
type doubler struct {
	info    engine.Info
	started chan struct{}
}

func newDoubler() *doubler {
	return &doubler{started: make(chan struct{}, 8), info: engine.Info{
		Platform: "doubler", Inputs: []model.Signature{{Name: "x", Type: model.Uint8, Shape: []int64{-1, 1}}},
		Outputs: []model.Signature{{Name: "y", Type: model.Uint8, Shape: []int64{-1, 2}}},
	}}
}

func (d *doubler) Info() engine.Info { return d.info }
func (d *doubler) Close() error      { return nil }

func (d *doubler) Infer(ctx context.Context, in []model.Tensor, _ []string) ([]model.Tensor, error) {
	x := in[0].Data[0]
	if x == 1 {
		d.started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []model.Tensor{{Name: "y", Type: model.Uint8, Shape: []int64{1, 2}, Data: []byte{x, x}}}, nil
}

func input(x byte) []model.Tensor {
	return []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1, 1}, Data: []byte{x}}}
}

// mustLoadOIP loads the model of a fake server.
func mustLoadOIP(t *testing.T, f *oipFake) engine.SequenceModel {
	t.Helper()
	m, err := loadOIP(t, f, Server{})
	if err != nil {
		t.Fatal(err)
	}
	return m.(engine.SequenceModel)
}

// The server gets the sequence of a request, which is the only one with its number.
func TestSequence(t *testing.T) {
	f := newOIPFake(newDoubler())
	m := mustLoadOIP(t, f)
	if !m.Info().Stateful {
		t.Error("the model of a server with sequences has no state")
	}
	for _, q := range []model.Sequence{{Number: 7, Start: true}, {Number: 7, End: true}, {}} {
		if _, err := m.InferSequence(t.Context(), q, input(3), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []model.Sequence{{Number: 7, Start: true}, {Number: 7, End: true}, {}} {
		p := f.sequences[i]
		got := model.Sequence{Number: p["sequence_id"].GetInt64Param(), Start: p["sequence_start"].GetBoolParam(), End: p["sequence_end"].GetBoolParam()}
		if got != want {
			t.Errorf("request %d: %+v, want %+v", i, got, want)
		}
	}
	if len(f.sequences[2]) > 0 {
		t.Errorf("a request of no sequence has the parameters %v", f.sequences[2])
	}
	f = newOIPFake(newDoubler())
	f.extensions = nil
	if mustLoadOIP(t, f).Info().Stateful {
		t.Error("the model of a server without sequences has state")
	}
}

// A call that is cancelled ends at the server as well.
func TestCancelAtServer(t *testing.T) {
	d := newDoubler()
	f := newOIPFake(d)
	m := mustLoadOIP(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the client has gone")
	go func() {
		<-d.started
		cancel(reason)
	}()
	if _, err := m.Infer(ctx, input(1), nil); !errors.Is(err, reason) {
		t.Errorf("%v, want %v", err, reason)
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		cancelled := f.cancelled
		f.mu.Unlock()
		if cancelled == 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the server goes on")
		}
	}
	if got, err := m.Infer(t.Context(), input(3), nil); err != nil || string(got[0].Data) != "\x03\x03" {
		t.Errorf("%v, %v", got, err)
	}
}

// The description of the model comes from the server, with the largest batch of its configuration.
func TestDescribe(t *testing.T) {
	f := newOIPFake(newDoubler())
	want := engine.Info{Platform: "doubler", BatchDimension: true, Calls: tensorCalls, Stateful: true, Inputs: newDoubler().info.Inputs, Outputs: newDoubler().info.Outputs}
	if diff := cmp.Diff(want, mustLoadOIP(t, f).Info()); diff != "" {
		t.Error(diff)
	}
	want.MaxBatch, f.batch = 4, 4
	if diff := cmp.Diff(want, mustLoadOIP(t, f).Info()); diff != "" {
		t.Error(diff)
	}
	want.MaxBatch, want.BatchDimension, f.batch = 0, false, 0 // the first dimension counts something else
	if diff := cmp.Diff(want, mustLoadOIP(t, f).Info()); diff != "" {
		t.Error(diff)
	}
}

// What a server describes wrongly, or does not describe, is refused when the model is loaded.
func TestRefusedModels(t *testing.T) {
	for name, x := range map[string]struct {
		change func(f *oipFake, d *doubler)
		server Server
		want   string
	}{
		"several models":  {change: func(f *oipFake, _ *doubler) { f.names = []string{"a", "b"} }, want: "2 models (a, b)"},
		"no list":         {change: func(f *oipFake, _ *doubler) { f.listed = false }, want: "name one as `model`"},
		"another name":    {change: func(*oipFake, *doubler) {}, server: Server{Model: "other"}, want: "the model other is not ready"},
		"a broken model":  {change: func(f *oipFake, _ *doubler) { f.failure = errors.New("no operator Foo") }, want: "no operator Foo"},
		"no inputs":       {change: func(_ *oipFake, d *doubler) { d.info.Inputs = nil }, want: "0 inputs and 1 outputs"},
		"a wrong shape":   {change: func(_ *oipFake, d *doubler) { d.info.Inputs[0].Shape = []int64{-2} }, want: "shape is not valid"},
		"the same name":   {change: func(_ *oipFake, d *doubler) { d.info.Inputs = append(d.info.Inputs, d.info.Inputs[0]) }, want: "there twice"},
		"an unknown type": {change: func(_ *oipFake, d *doubler) { d.info.Outputs[0].Type = 77 }, want: "unknown data type"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoubler()
			f := newOIPFake(d)
			x.change(f, d)
			if _, err := loadOIP(t, f, x.server); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
	f := newOIPFake(newDoubler())
	f.apart = true
	if m := mustLoadOIP(t, f); m.(*tensorModel).name != "fake" {
		t.Errorf("the only model of a list in a service of its own: %q", m.(*tensorModel).name)
	}
	f = newOIPFake(newDoubler())
	f.names, f.listed = []string{"a", "b"}, false
	if m, err := loadOIP(t, f, Server{Model: "b"}); err != nil || m.(*tensorModel).name != "b" {
		t.Errorf("a named model of a server without a list: %v", err)
	}
}

// A server's reply that is not what it described ends the call with an error that names the output.
func TestHostileReplies(t *testing.T) {
	out := func(name, kind string, shape ...int64) *inference.ModelInferResponse_InferOutputTensor {
		return &inference.ModelInferResponse_InferOutputTensor{Name: name, Datatype: kind, Shape: shape}
	}
	type outputs = []*inference.ModelInferResponse_InferOutputTensor
	for name, x := range map[string]struct {
		reply *inference.ModelInferResponse
		want  string
	}{
		"no outputs":       {&inference.ModelInferResponse{}, `no output "y"`},
		"another name":     {&inference.ModelInferResponse{Outputs: outputs{out("z", "UINT8", 1, 2)}, RawOutputContents: [][]byte{{1, 2}}}, `no output "y"`},
		"another type":     {&inference.ModelInferResponse{Outputs: outputs{out("y", "INT8", 1, 2)}, RawOutputContents: [][]byte{{1, 2}}}, "INT8"},
		"another rank":     {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 2)}, RawOutputContents: [][]byte{{1, 2}}}, "[2]"},
		"another shape":    {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 1, 3)}, RawOutputContents: [][]byte{{1, 2, 3}}}, "[1 3]"},
		"too few bytes":    {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 1<<40, 2)}, RawOutputContents: [][]byte{{1, 2}}}, "2 bytes"},
		"an overflow":      {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 1<<62, 1<<62)}, RawOutputContents: [][]byte{{1, 2}}}, "shape"},
		"too few contents": {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 1, 2), out("z", "UINT8", 1)}, RawOutputContents: [][]byte{{1, 2}}}, "raw contents"},
		"no contents":      {&inference.ModelInferResponse{Outputs: outputs{out("y", "UINT8", 1, 2)}}, "0 elements"},
		"many messages":    {&inference.ModelInferResponse{Outputs: make(outputs, 1<<17)}, "parts"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOIPFake(newDoubler())
			f.reply = x.reply
			m := mustLoadOIP(t, f)
			_, err := m.Infer(t.Context(), input(3), nil)
			if outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

// What answers at the address may be no server of the protocol, or be gone.
func TestNoServerOfTheProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Servers: map[string]Server{"x": {Kind: kindOIP, Model: "m", URL: "grpc://" + l.Addr().String()}}}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(t.Context(), engine.Source{}, engine.Options{Server: "x"}); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("%v", err)
	}
}

// A model repository in Triton's layout has the pushed files.
func TestMakeRepository(t *testing.T) {
	source := saveONNX(t, onnxfile.MLP(1, 2, 2))
	for _, name := range []string{"config.pbtxt", "weights.bin"} {
		if err := os.WriteFile(filepath.Join(source.Folder, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := Server{Kind: kindOIP, Command: []string{"serve", "--repository={repository}"}, Model: "mlp"}
	for range 2 { // the second start replaces the folder of the first
		values, err := s.placeholders([]int{1, 2, 3}, source, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, folder, _ := strings.Cut(s.command(values)[1], "=")
		for file, want := range map[string]string{"mlp/config.pbtxt": "config.pbtxt", "mlp/1/weights.bin": "weights.bin"} {
			if got, err := os.ReadFile(filepath.Join(folder, file)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", file, got, err)
			}
		}
		if _, err := os.Stat(filepath.Join(folder, "mlp", "1", "model.onnx")); err != nil {
			t.Error(err)
		}
	}
}
