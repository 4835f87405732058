package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/builtin"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// graphFile writes an ONNX file into the folder of the run unless it exists.
func (b *bench) graphFile(name string, make func() *onnxfile.Graph) (string, error) {
	path := filepath.Join(b.Dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, os.WriteFile(path, make().Encode(), 0o600)
}

func (b *bench) encoderFile() (string, error) {
	return b.graphFile("encoder.onnx", func() *onnxfile.Graph { return onnxfile.Encoder(1, onnxfile.MiniLM) })
}

func (b *bench) mlpFile(seed uint64) (string, error) {
	return b.graphFile("mlp"+string(rune('0'+seed))+".onnx", func() *onnxfile.Graph { return onnxfile.MLP(seed, 784, 512, 512, 10) })
}

// The shapes of the models for text: words make each byte sequence of a prompt a token's text.
//
//nolint:gochecknoglobals // tables
var (
	large  = gguf.Shape{Layers: 12, Width: 768, FeedForward: 2048, Heads: 12, SharedHeads: 4, Context: 4096, Type: gguf.Q8_0, Words: words(3841)}
	medium = gguf.Shape{Layers: 8, Width: 512, FeedForward: 1024, Heads: 8, SharedHeads: 4, Context: 4096, Type: gguf.Q8_0, Words: words(1000)}
	small  = gguf.Shape{Layers: 2, Width: 64, FeedForward: 128, Heads: 4, SharedHeads: 2, Context: 4096, Type: gguf.Q8_0, Words: words(500)}
)

func words(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = string([]byte{byte('a' + i/676%26), byte('a' + i/26%26), byte('a' + i%26), ' '})
	}
	return list
}

// textFile writes a GGUF file into the folder of the run unless it exists.
func (b *bench) textFile(name string, s gguf.Shape) (path string, err error) {
	path = filepath.Join(b.Dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = gguf.Random(s, 1).WriteTo(f)
	return path, err
}

func (b *bench) largeText() (string, error)  { return b.textFile("large.gguf", large) }
func (b *bench) mediumText() (string, error) { return b.textFile("medium.gguf", medium) }
func (b *bench) smallText() (string, error)  { return b.textFile("small.gguf", small) }

// prompt returns n tokens of words that depend on seed alone.
func prompt(seed uint64, n int) []int32 {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // words for a prompt
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(259 + random.IntN(500))
	}
	return list
}

// direct loads a model in this process.
func direct(ctx context.Context, name, path string, o engine.Options) (engine.Model, error) {
	var engines builtin.Engines
	for _, e := range engines.List() {
		if e.Name() == name {
			return e.Load(ctx, engine.Source{Path: path}, o)
		}
	}
	return nil, errors.New("there is no engine " + name)
}

func tokensInput(n int) model.Tensor {
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(i * 7 % 1000)
	}
	return onnxfile.Ints("input_ids", []int64{1, int64(n)}, values...)
}

func mlpInput(rows int) model.Tensor {
	values := make([]float32, rows*784)
	for i := range values {
		values[i] = float32(i%13) / 13
	}
	return onnxfile.Floats("input", []int64{int64(rows), 784}, values...)
}
