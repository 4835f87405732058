package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// functionApp is the app whose function computes with the bench's models.
const functionApp = `app: bench
functions:
  infer:
    module: infer.wasm
    http: true
    limits: {memory: 128MiB, deadline: 120s}
    imports: [{model: encoder}, {model: trivial}]
routes:
  - {path: /, methods: [POST], function: infer}
`

// functions measures inference from a function through wasi-nn beside direct calls.
func functions(ctx context.Context, b *bench) error {
	p, err := b.start(ctx, 1, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	encoder, err := b.encoderFile()
	if err != nil {
		return err
	}
	trivial, err := b.graphFile("trivial.onnx", func() *onnxfile.Graph { return onnxfile.Unary("Relu", model.FP32, "n", 4) })
	if err != nil {
		return err
	}
	if err := errors.Join(p.push(ctx, "encoder", encoder, oneThread()), p.push(ctx, "trivial", trivial, oneThread("batching: {max: 1}")), p.deployFunction(ctx)); err != nil {
		return err
	}
	served, alone, err := functionTimes(ctx, p, computations{"encoder", encoder, b.Rounds(9, 3), 20, tokensInput(128)})
	if err != nil {
		return err
	}
	b.Row(paired.NewRow("encoder from a function through wasi-nn", "ms", "direct call", served, alone, paired.Goal{MaxRatio: 1.05}))
	served, alone, err = functionTimes(ctx, p, computations{"trivial", trivial, b.Rounds(15, 5), 2000, onnxfile.Floats("x", []int64{1, 4}, -1, 0, 1, 2)})
	if err != nil {
		return err
	}
	extra := make([]float64, len(served))
	for i := range extra {
		extra[i] = 1000 * (served[i] - alone[i])
	}
	b.Row(paired.NewRow("trivial model from a function through wasi-nn: added to a direct call", "us", "", extra, nil, paired.Goal{Max: 15}).
		Because("a call crosses from the tenant's process to the worker and back, and the guest makes three calls of wasi-nn for it"))
	return nil
}

// deployFunction builds and deploys the function.
func (p *pool) deployFunction(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", filepath.Join(p.dir, "infer.wasm"), "./bench/model/infer")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the function: %w: %s", err, text)
	}
	manifest := filepath.Join(p.dir, "app.yaml")
	if err := os.WriteFile(manifest, []byte(functionApp), 0o600); err != nil {
		return err
	}
	_, err := p.Node(p.names[0]).Output(ctx, "deploy", manifest)
	return err
}

// computations are the computations that the function and this process execute in turn.
type computations struct {
	name, file    string // of the model
	rounds, calls int
	input         model.Tensor
}

// functionTimes makes the function and this process compute in turn, and returns the median of each
// turn in milliseconds.
func functionTimes(ctx context.Context, p *pool, c computations) (served, alone []float64, err error) {
	own, err := direct(ctx, "onnx", c.file, engine.Options{Threads: 1})
	if err != nil {
		return nil, nil, err
	}
	defer own.Close()
	c.input.Name = own.Info().Inputs[0].Name
	for round := range c.rounds + 1 {
		times, err := p.callFunction(ctx, c.name, c.calls)
		if err != nil {
			return nil, nil, err
		}
		direct, err := inTurns(c.calls, func() error { return infer(ctx, own, c.input) })
		if err != nil {
			return nil, nil, err
		}
		if round > 0 {
			served, alone = append(served, paired.Median(times)), append(alone, paired.Median(direct[0]))
		}
	}
	return served, alone, nil
}

// callFunction returns the times of a number of computations within one call.
func (p *pool) callFunction(ctx context.Context, name string, calls int) (times []float64, err error) {
	r, err := open(ctx, fmt.Sprintf("%s/bench/?model=%s&n=%d", p.urls[0], name, calls), nil, nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	return times, json.NewDecoder(r.Body).Decode(&times)
}
