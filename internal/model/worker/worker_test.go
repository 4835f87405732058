package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/need"
)

// engines makes an engine of workers: the contract holds through the process boundary.
type engines struct {
	inner engine.Engine
	tb    testing.TB
}

func (e *engines) Name() string    { return e.inner.Name() }
func (e *engines) Version() string { return e.inner.Version() }

func (e *engines) Load(ctx context.Context, m engine.Source, o engine.Options) (engine.Model, error) {
	return worker.Start(ctx, worker.Options{
		Launch: launch(e.inner), Engine: e.inner.Name(), Source: m, Options: o,
	})
}

func launch(e engine.Engine) helper.Launcher {
	return helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		return worker.Run(ctx, socket, worker.ProcessOptions{Engines: []engine.Engine{e}})
	})
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
	_, err := onnx.Embedded()
	need.Require(t, "onnxruntime", outboard.KindOf(err) != outboard.NotFound, "make build")
	(&enginetest.Tensors{Engine: &engines{&onnx.Engine{}, t}, Load: save}).Test(t)
}

var _ engine.TextModel = (*fake)(nil)

// A fake engine has a model that does what a test says.
type fake struct {
	infer    func(ctx context.Context, inputs []model.Tensor) ([]model.Tensor, error)
	generate func(ctx context.Context, r engine.Generation, emit func(engine.Token) error) (engine.Usage, error)
}

func (*fake) Name() string    { return "fake" }
func (*fake) Version() string { return "1" }
func (f *fake) Load(context.Context, engine.Source, engine.Options) (engine.Model, error) {
	return f, nil
}
func (*fake) Info() engine.Info { return engine.Info{Platform: "fake"} }
func (*fake) Close() error      { return nil }

func (f *fake) Infer(ctx context.Context, inputs []model.Tensor, _ []string) ([]model.Tensor, error) {
	return f.infer(ctx, inputs)
}

func (*fake) Tokenize(_ context.Context, t engine.Text) ([]int32, error) {
	var list []int32
	for _, r := range t.Content {
		list = append(list, r)
	}
	return list, nil
}

func (*fake) Render(_ context.Context, c engine.Conversation) (string, error) {
	if string(c.Messages) == "[]" {
		return "", engine.ErrNoTemplate
	}
	return string(c.Messages), nil
}

func (*fake) Embed(_ context.Context, tokens []int32) ([]float32, error) {
	return []float32{float32(len(tokens)), -0.5}, nil
}

func (*fake) Stats() engine.TextStats { return engine.TextStats{Running: 1} }

func (f *fake) Generate(ctx context.Context, r engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	return f.generate(ctx, r, emit)
}

func start(t *testing.T, f *fake) *worker.Worker {
	t.Helper()
	w, err := worker.Start(t.Context(), worker.Options{Launch: launch(f), Engine: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// Outputs that do not fit into the memory of the call come in memory of the worker's own.
func TestLargeOutputs(t *testing.T) {
	w := start(t, &fake{infer: func(_ context.Context, in []model.Tensor) ([]model.Tensor, error) {
		n := in[0].Shape[0]
		return []model.Tensor{
			{Name: "big", Type: model.Uint8, Shape: []int64{n * 1000}, Data: []byte(strings.Repeat("b", int(n)*1000))},
			{Name: "bigger", Type: model.Uint8, Shape: []int64{n * 2000}, Data: []byte(strings.Repeat("c", int(n)*2000))},
		}, nil
	}})
	for range 3 {
		out, err := w.Infer(t.Context(), []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{500}, Data: make([]byte, 500)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(out[0].Data) != strings.Repeat("b", 500_000) || string(out[1].Data) != strings.Repeat("c", 1_000_000) {
			t.Error("the outputs are not those of the model")
		}
	}
}

// A worker that ends fails the calls under way with its reason.
func TestCrash(t *testing.T) {
	entered := make(chan struct{}, 16)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	f := &fake{infer: func(context.Context, []model.Tensor) ([]model.Tensor, error) {
		entered <- struct{}{}
		<-never
		return nil, nil
	}}
	w := startAbrupt(t, f)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := w.Infer(t.Context(), nil, nil); outboard.KindOf(err) != outboard.Unreachable || !engine.IsCrash(err) || !strings.Contains(err.Error(), "killed for a test") {
				t.Errorf("got %v", err)
			}
		})
	}
	for range 8 {
		<-entered
	}
	w.Kill(outboard.Errorf(outboard.Unreachable, "", "killed for a test"))
	all.Wait()
	<-w.Done()
	if _, err := w.Infer(t.Context(), nil, nil); err == nil || engine.IsCrash(err) {
		t.Errorf("after the end of the worker: %v", err)
	}
	if _, err := w.Tokenize(t.Context(), engine.Text{}); err == nil || engine.IsCrash(err) {
		t.Errorf("after the end of the worker: %v", err)
	}
}

// startAbrupt starts a worker that, like a process, ends without a last reply.
func startAbrupt(t *testing.T, f *fake) *worker.Worker {
	t.Helper()
	abrupt := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		go func() {
			_ = worker.Run(context.Background(), socket, worker.ProcessOptions{Engines: []engine.Engine{f}})
		}()
		<-ctx.Done()
		return ctx.Err()
	})
	w, err := worker.Start(t.Context(), worker.Options{Launch: abrupt, Engine: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Of the generations that a process was executing when it ended, those without a token are suspected of
// having ended it; all are if each has tokens.
func TestSuspectedGenerations(t *testing.T) {
	for name, tokens := range map[string][]int{"a prompt": {3, 0, 1, 0}, "tokens": {1, 2}, "prompts": {0, 0}} {
		entered, never := make(chan struct{}, 16), make(chan struct{})
		t.Cleanup(func() { close(never) })
		w := startAbrupt(t, &fake{generate: func(_ context.Context, r engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
			for range r.MaxTokens {
				if err := emit(engine.Token{Text: "x"}); err != nil {
					return engine.Usage{}, err
				}
			}
			entered <- struct{}{}
			<-never
			return engine.Usage{}, nil
		}})
		var all, emitted sync.WaitGroup
		for _, n := range tokens {
			suspect := n == 0 || !slices.Contains(tokens, 0)
			emitted.Add(n)
			all.Go(func() {
				_, err := w.Generate(t.Context(), engine.Generation{MaxTokens: n}, func(engine.Token) error {
					emitted.Done()
					return nil
				})
				if outboard.KindOf(err) != outboard.Unreachable || engine.IsCrash(err) != suspect {
					t.Errorf("%s: after %d tokens: %v, suspect %t", name, n, err, engine.IsCrash(err))
				}
			})
		}
		for range tokens {
			<-entered
		}
		emitted.Wait()
		w.Kill(outboard.Errorf(outboard.Unreachable, "", "killed for a test"))
		all.Wait()
	}
}

func TestText(t *testing.T) {
	w := start(t, &fake{generate: func(_ context.Context, r engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
		for i := range r.MaxTokens {
			if err := emit(engine.Token{ID: int32(i), Text: fmt.Sprint(i)}); err != nil {
				return engine.Usage{}, err
			}
		}
		return engine.Usage{GeneratedTokens: r.MaxTokens}, nil
	}})
	if tokens, err := w.Tokenize(t.Context(), engine.Text{Content: "ab"}); err != nil || !cmp.Equal(tokens, []int32{'a', 'b'}) {
		t.Errorf("Tokenize: %v, %v", tokens, err)
	}
	if _, err := w.Render(t.Context(), engine.Conversation{Messages: []byte("[]")}); !errors.Is(err, engine.ErrNoTemplate) {
		t.Errorf("Render: %v", err)
	}
	if text, err := w.Render(t.Context(), engine.Conversation{Messages: []byte(`[1]`)}); err != nil || text != "[1]" {
		t.Errorf("Render: %q, %v", text, err)
	}
	if list, err := w.Embed(t.Context(), []int32{1, 2, 3}); err != nil || !cmp.Equal(list, []float32{3, -0.5}) {
		t.Errorf("Embed: %v, %v", list, err)
	}
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			next := int32(0)
			usage, err := w.Generate(t.Context(), engine.Generation{MaxTokens: 10 * n}, func(token engine.Token) error {
				if token.ID != next {
					t.Errorf("token %d, want %d", token.ID, next)
				}
				next++
				return nil
			})
			if err != nil || usage.GeneratedTokens != 10*n || int(next) != 10*n {
				t.Errorf("%d tokens: %v, %v", next, usage, err)
			}
		})
	}
	all.Wait()
}

// TestGenerationsAreBounded: a request whose every token would cost the model's other generations
// time does not reach the engine.
func TestGenerationsAreBounded(t *testing.T) {
	w := start(t, &fake{generate: func(context.Context, engine.Generation, func(engine.Token) error) (engine.Usage, error) {
		return engine.Usage{}, nil
	}})
	biases := func(n int32) engine.Sampling {
		s := engine.Sampling{Bias: map[int32]float32{}}
		for i := range n {
			s.Bias[i] = 1
		}
		return s
	}
	for name, c := range map[string]struct {
		g  engine.Generation
		ok bool
	}{
		"stop texts":            {engine.Generation{Stop: []string{"\n\n", strings.Repeat("x", 1000)}}, true},
		"many stop texts":       {engine.Generation{Stop: make([]string, 1000)}, false},
		"long stop texts":       {engine.Generation{Stop: []string{strings.Repeat("x", 1<<20)}}, false},
		"biases":                {engine.Generation{Sampling: biases(100)}, true},
		"a bias for each token": {engine.Generation{Sampling: biases(100_000)}, false},
	} {
		_, err := w.Generate(t.Context(), c.g, func(engine.Token) error { return nil })
		if ok := err == nil; ok != c.ok || !ok && outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A generation ends with its context and with an error of its consumer, and no other does.
func TestCancelGeneration(t *testing.T) {
	ended := make(chan error, 2)
	w := start(t, &fake{generate: func(ctx context.Context, _ engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
		_ = emit(engine.Token{})
		<-ctx.Done()
		ended <- ctx.Err()
		return engine.Usage{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := w.Generate(ctx, engine.Generation{}, func(engine.Token) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	stop := errors.New("enough")
	if _, err := w.Generate(t.Context(), engine.Generation{}, func(engine.Token) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the engine goes on")
		}
	}
}
