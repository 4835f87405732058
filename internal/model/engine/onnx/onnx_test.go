package onnx_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/need"
)

// needLibrary skips a test in a build without ONNX Runtime.
func needLibrary(tb testing.TB) {
	tb.Helper()
	_, err := onnx.Embedded()
	need.Require(tb, "onnxruntime", outboard.KindOf(err) != outboard.NotFound, "make build")
	if err != nil {
		tb.Fatal(err)
	}
}

func save(t *testing.T, g *onnxfile.Graph) engine.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, g.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	return engine.Source{Path: path}
}

func TestContract(t *testing.T) {
	needLibrary(t)
	(&enginetest.Tensors{Engine: &onnx.Engine{}, Load: save}).Test(t)
}

func TestEncoder(t *testing.T) {
	needLibrary(t)
	shape := onnxfile.EncoderShape{Layers: 2, Width: 16, Heads: 4, FeedForward: 32, Vocabulary: 10, Sequence: 3}
	m, err := (&onnx.Engine{}).Load(t.Context(), save(t, onnxfile.Encoder(1, shape)), engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	one, err := m.(engine.TensorModel).Infer(t.Context(), []model.Tensor{onnxfile.Ints("input_ids", []int64{1, 3}, 1, 2, 3)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := m.(engine.TensorModel).Infer(t.Context(), []model.Tensor{onnxfile.Ints("input_ids", []int64{2, 3}, 1, 2, 3, 4, 5, 6)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := two[0].Shape; !slices.Equal(got, []int64{2, 3, 16}) || len(one[0].Data) != 3*16*4 {
		t.Errorf("shape %v, %d bytes", got, len(one[0].Data))
	}
	if slices.Equal(two[0].Data[:3*16*4], two[0].Data[3*16*4:]) {
		t.Error("two texts have the same state")
	}
}

func TestBadFile(t *testing.T) {
	needLibrary(t)
	for name, content := range map[string]string{"empty": "", "text": "this is no model", "truncated": string(onnxfile.MLP(1, 4, 3).Encode()[:60])} {
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&onnx.Engine{}).Load(t.Context(), engine.Source{Path: path}, engine.Options{}); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A library that a node does not have is no fault of the file: another node may have it.
func TestWrongLibrary(t *testing.T) {
	_, err := (&onnx.Engine{}).Load(t.Context(), engine.Source{Path: "x.onnx"}, engine.Options{Library: "/lib/none.so"})
	if outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("got %v", err)
	}
}

func TestNoCUDA(t *testing.T) {
	needLibrary(t)
	_, err := (&onnx.Engine{}).Load(t.Context(), save(t, onnxfile.MLP(1, 4, 3)), engine.Options{Device: "cuda/0"})
	if outboard.KindOf(err) != outboard.Invalid && outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("got %v", err)
	}
}

// Calls are made from new goroutines at many depths of their stacks, which therefore grow
// during calls into the library: a pointer that is not pinned would be stale.
func TestStackGrowth(t *testing.T) {
	needLibrary(t)
	m, err := (&onnx.Engine{}).Load(t.Context(), save(t, onnxfile.MLP(1, 4, 16, 3)), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tensors := m.(engine.TensorModel)
	var all sync.WaitGroup
	for depth := range 400 {
		all.Go(func() { recurse(t, tensors, depth) })
	}
	all.Wait()
}

func recurse(t *testing.T, m engine.TensorModel, depth int) byte {
	var frame [128]byte
	if depth > 0 {
		return recurse(t, m, depth-1) + frame[depth%len(frame)]
	}
	out, err := m.Infer(t.Context(), []model.Tensor{onnxfile.Floats("input", []int64{1, 4}, 1, 2, 3, 4)}, nil)
	if err != nil || len(out) != 1 || len(out[0].Data) != 12 {
		t.Errorf("got %v, %v", out, err)
	}
	return frame[0]
}

func BenchmarkInfer(b *testing.B) {
	needLibrary(b)
	path := filepath.Join(b.TempDir(), "model.onnx")
	if err := os.WriteFile(path, onnxfile.Unary("Relu", model.FP32, 1, 4).Encode(), 0o600); err != nil {
		b.Fatal(err)
	}
	m, err := (&onnx.Engine{}).Load(b.Context(), engine.Source{Path: path}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	in := []model.Tensor{onnxfile.Floats("x", []int64{1, 4}, 1, 2, 3, 4)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.(engine.TensorModel).Infer(b.Context(), in, nil); err != nil {
			b.Fatal(err)
		}
	}
}
