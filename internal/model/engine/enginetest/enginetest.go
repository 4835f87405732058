// Package enginetest tests engines against the contract of package engine.
package enginetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// Tensors is an engine for tensors, together with the loader of the contract's test models.
type Tensors struct {
	Engine  engine.Engine
	Options engine.Options
	// Remote marks the engine of a server whose memory and platform are not known here. Without are the
	// data types that the server lacks.
	Remote  bool
	Without []model.DataType
	// Silent marks an engine that does not report why it refuses a file.
	Silent bool
	// Load returns the source of a model with the given graph.
	Load func(t *testing.T, g *onnxfile.Graph) engine.Source
}

// Test tests the contract of tensor models.
func (e *Tensors) Test(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *Tensors){
		"info":                      testInfo,
		"outputs of a known model":  testValues,
		"every data type":           testDataTypes,
		"named outputs":             testNamedOutputs,
		"wrong inputs":              testWrongInputs,
		"empty tensors":             testEmpty,
		"concurrent calls":          testConcurrent,
		"a call ends with its ctx":  testCancel,
		"Close ends calls":          testClose,
		"a file that is no model":   testNoModel,
		"an operator that is wrong": testUnknownOperator,
	} {
		t.Run(name, func(t *testing.T) { test(t, e) })
	}
}

// limit bounds an operation that must not hang.
const limit = time.Minute

func (e *Tensors) open(t *testing.T, g *onnxfile.Graph) engine.TensorModel {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	m, err := e.Engine.Load(ctx, e.Load(t, g), e.Options)
	if err != nil {
		t.Fatalf("load %s: %v", g.Name, err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	tensors, ok := m.(engine.TensorModel)
	if !ok {
		t.Fatalf("%T is no TensorModel", m)
	}
	return tensors
}

func infer(t *testing.T, m engine.TensorModel, outputs []string, inputs ...model.Tensor) ([]model.Tensor, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return m.Infer(ctx, inputs, outputs)
}

func mustInfer(t *testing.T, m engine.TensorModel, inputs ...model.Tensor) []model.Tensor {
	t.Helper()
	out, err := infer(t, m, nil, inputs...)
	if err != nil {
		t.Fatalf("infer: %v", err)
	}
	return out
}

func testInfo(t *testing.T, e *Tensors) {
	info := e.open(t, onnxfile.MLP(1, 4, 16, 3)).Info()
	want := engine.Info{
		Platform: "onnx_onnxv1", BatchDimension: true,
		Inputs:  []model.Signature{{Name: "input", Type: model.FP32, Shape: []int64{-1, 4}}},
		Outputs: []model.Signature{{Name: "output", Type: model.FP32, Shape: []int64{-1, 3}}},
	}
	if info.Memory <= 0 && !e.Remote {
		t.Errorf("Memory is %d", info.Memory)
	}
	info.Memory = 0
	if e.Remote { // the server's own
		want.Platform, want.MaxBatch, want.Calls, want.Stateful = info.Platform, info.MaxBatch, info.Calls, info.Stateful
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	if e.open(t, onnxfile.Unary("Relu", model.FP32, 4)).Info().BatchDimension {
		t.Error("a model of a fixed shape has no batch dimension")
	}
}

func testValues(t *testing.T, e *Tensors) {
	m := e.open(t, onnxfile.Unary("Relu", model.FP32, "batch", 2))
	got := mustInfer(t, m, onnxfile.Floats("x", []int64{3, 2}, -1, 2, 3, -4, 5, -6))
	want := []model.Tensor{onnxfile.Floats("y", []int64{3, 2}, 0, 2, 3, 0, 5, 0)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A request has the same result each time, to the bit.
	mlp := e.open(t, onnxfile.MLP(7, 4, 16, 3))
	row := onnxfile.Floats("input", []int64{1, 4}, .1, -.2, .3, -.4)
	first, second := mustInfer(t, mlp, row), mustInfer(t, mlp, row)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the same inputs gave two results: %s", diff)
	}
}

func testDataTypes(t *testing.T, e *Tensors) {
	for kind := model.Bool; kind <= model.Bytes; kind++ {
		if slices.Contains(e.Without, kind) {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			m := e.open(t, onnxfile.Unary("Identity", kind, "batch"))
			in := model.Tensor{Name: "x", Type: kind, Shape: []int64{2}, Data: make([]byte, 2*kind.Size())}
			for i := range in.Data {
				in.Data[i] = byte(i & 1)
			}
			if kind == model.Bytes {
				in.Data = []byte("\x02\x00\x00\x00h\xff\x00\x00\x00\x00")
			}
			got := mustInfer(t, m, in)
			in.Name = "y"
			if diff := cmp.Diff([]model.Tensor{in}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func testNamedOutputs(t *testing.T, e *Tensors) {
	g := onnxfile.Unary("Relu", model.FP32, 1)
	g.Nodes = append(g.Nodes, onnxfile.Node{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"z"}})
	g.Outputs = append(g.Outputs, onnxfile.Value{Name: "z", Type: model.FP32, Shape: []any{1}})
	m := e.open(t, g)
	in := onnxfile.Floats("x", []int64{1}, 5)
	got, err := infer(t, m, []string{"z"}, in)
	if diff := cmp.Diff([]model.Tensor{onnxfile.Floats("z", []int64{1}, -5)}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if all := mustInfer(t, m, in); len(all) != 2 {
		t.Errorf("%d outputs without names, want 2", len(all))
	}
	if _, err := infer(t, m, []string{"none"}, in); err == nil {
		t.Error("an output that does not exist was computed")
	}
}

func testWrongInputs(t *testing.T, e *Tensors) {
	m := e.open(t, onnxfile.MLP(1, 4, 3))
	for name, in := range map[string]model.Tensor{
		"rank":  onnxfile.Floats("input", []int64{4}, 1, 2, 3, 4),
		"shape": onnxfile.Floats("input", []int64{1, 3}, 1, 2, 3),
		"name":  onnxfile.Floats("other", []int64{1, 4}, 1, 2, 3, 4),
		"type":  onnxfile.Ints("input", []int64{1, 4}, 1, 2, 3, 4),
		"size":  onnxfile.Floats("input", []int64{1, 4}, 1, 2, 3),
	} {
		if _, err := infer(t, m, nil, in); err == nil {
			t.Errorf("wrong %s: no error", name)
		}
	}
	mustInfer(t, m, onnxfile.Floats("input", []int64{1, 4}, 1, 2, 3, 4)) // it still works
}

func testEmpty(t *testing.T, e *Tensors) {
	m := e.open(t, onnxfile.Unary("Relu", model.FP32, "batch", 2))
	got := mustInfer(t, m, onnxfile.Floats("x", []int64{0, 2}))
	if len(got) != 1 || len(got[0].Data) != 0 || !cmp.Equal(got[0].Shape, []int64{0, 2}) {
		t.Errorf("got %v", got)
	}
}

func testConcurrent(t *testing.T, e *Tensors) {
	m := e.open(t, onnxfile.Unary("Relu", model.FP32, "batch", 1))
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for j := range 20 {
				v := float32(100*i + j + 1)
				got := mustInfer(t, m, onnxfile.Floats("x", []int64{2, 1}, v, -v))
				if diff := cmp.Diff([]model.Tensor{onnxfile.Floats("y", []int64{2, 1}, v, 0)}, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	all.Wait()
}

// slow returns a model and an input whose inference takes minutes.
func slow(t *testing.T, e *Tensors) (engine.TensorModel, model.Tensor) {
	t.Helper()
	const size = 1024
	return e.open(t, onnxfile.Slow(size, 2_000)), onnxfile.Floats("x", []int64{size, size}, make([]float32, size*size)...)
}

func testCancel(t *testing.T, e *Tensors) {
	m, in := slow(t, e)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Infer(ctx, []model.Tensor{in}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func testClose(t *testing.T, e *Tensors) {
	m, in := slow(t, e)
	ended := make(chan error, 1)
	go func() {
		_, err := m.Infer(t.Context(), []model.Tensor{in}, nil)
		ended <- err
	}()
	time.AfterFunc(50*time.Millisecond, func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the call succeeded")
		}
	case <-time.After(limit):
		t.Fatal("the call goes on")
	}
	if _, err := infer(t, m, nil, in); err == nil {
		t.Error("a closed model computes")
	}
}

func testNoModel(t *testing.T, e *Tensors) {
	g := onnxfile.MLP(1, 4, 3)
	source := e.Load(t, g)
	source.Path += ".none"
	if _, err := e.Engine.Load(t.Context(), source, e.Options); err == nil {
		t.Error("a file that does not exist was loaded")
	}
}

func testUnknownOperator(t *testing.T, e *Tensors) {
	_, err := e.Engine.Load(t.Context(), e.Load(t, onnxfile.Unary("Frobnicate", model.FP32, 1)), e.Options)
	if err == nil || !e.Silent && !strings.Contains(err.Error(), "Frobnicate") {
		t.Errorf("the error has to name the operator: %v", err)
	}
}
