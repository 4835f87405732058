// Package onnx executes ONNX models with ONNX Runtime, which it loads without cgo: the library
// embedded in this program, or another build that the user names.
//
// A hostile model or library can crash the process: the package belongs in a worker.
package onnx

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// Platform is the platform string of ONNX models in the Open Inference Protocol.
const Platform = "onnx_onnxv1"

// An Engine loads ONNX models. Its zero value uses the embedded library.
type Engine struct {
	// Library is the path of the library that is used where Options name none, "" for the embedded
	// library.
	Library string
}

var _ engine.Engine = (*Engine)(nil)

// Name implements engine.Engine.
func (e *Engine) Name() string { return "onnx" }

// Version implements engine.Engine. It returns "" if the library can't be loaded.
func (e *Engine) Version() string {
	l, err := e.open("")
	if err != nil {
		return ""
	}
	return l.version
}

func (e *Engine) open(named string) (*library, error) {
	if named == "" {
		named = e.Library
	}
	path, err := libraryPath(named)
	if err != nil {
		return nil, err
	}
	return openLibrary(path)
}

// Load implements engine.Engine. ONNX Runtime cannot interrupt it: when ctx ends first, Load
// returns ctx's error and the model is closed when it has been loaded.
func (e *Engine) Load(ctx context.Context, m engine.Source, o engine.Options) (engine.Model, error) {
	l, err := e.open(o.Library)
	if err != nil {
		return nil, err
	}
	type result struct {
		model *Model
		err   error
	}
	loaded := make(chan result, 1)
	go func() {
		m, err := l.loadModel(m, o)
		loaded <- result{m, err}
	}()
	select {
	case r := <-loaded:
		if r.err != nil {
			return nil, r.err
		}
		return r.model, nil
	case <-ctx.Done():
		go func() {
			if r := <-loaded; r.err == nil {
				_ = r.model.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// loadModel creates a session and reads its inputs and outputs.
func (l *library) loadModel(source engine.Source, o engine.Options) (_ *Model, err error) {
	const op = "load ONNX model"
	file, err := os.Stat(source.Path)
	if err != nil {
		return nil, outboard.Errorf(outboard.NotFound, op, "%w", err)
	}
	if o.Memory > 0 && file.Size() > o.Memory {
		return nil, outboard.Errorf(outboard.Exhausted, op, "the file has %v, and the model may hold %v: raise `memory` in its configuration",
			outboard.Bytes(file.Size()), outboard.Bytes(o.Memory))
	}
	threads := o.Threads
	if threads <= 0 {
		threads = 1
	}
	m := &Model{library: l, places: make(chan struct{}, max(1, runtime.NumCPU()/threads)), runs: map[*run]struct{}{}}
	if m.session, err = l.createSession(source.Path, threads, o.Device); err == nil {
		err = m.describe()
	}
	if err != nil {
		l.release(fnReleaseSession, m.session)
		return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	m.info.Memory = file.Size()
	return m, nil
}

// createSession loads a file. Threads that wait for work do not spin: spinning on busy processors
// makes a model several times slower.
func (l *library) createSession(path string, threads int, device string) (session uintptr, err error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var options uintptr
	if err := l.call(fnCreateSessionOptions, pin(&pins, &options)); err != nil {
		return 0, err
	}
	defer func() { l.release(fnReleaseSessionOptions, options) }()
	const allOptimizations = 99
	steps := []func() error{
		func() error { return l.call(fnSetSessionGraphOptimizationLevel, options, allOptimizations) },
		func() error { return l.call(fnSetIntraOpNumThreads, options, uintptr(threads)) },
		func() error { return l.call(fnSetInterOpNumThreads, options, 1) },
		func() error {
			return l.call(fnAddSessionConfigEntry, options,
				cString(&pins, "session.intra_op.allow_spinning"), cString(&pins, "0"))
		},
		func() error { return l.useDevice(options, device) },
		func() error {
			return l.call(fnCreateSession, l.env, cString(&pins, path), options, pin(&pins, &session))
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return 0, err
		}
	}
	return session, nil
}

// useDevice adds the CUDA execution provider for a device "cuda" or "cuda/INDEX". Builds with
// that provider export a function for it.
func (l *library) useDevice(options uintptr, device string) error {
	if device == "" || device == "cpu" {
		return nil
	}
	name, number, _ := strings.Cut(device, "/")
	index, err := strconv.Atoi(cmp.Or(number, "0"))
	if name != "cuda" || err != nil || index < 0 || index > math.MaxInt32 {
		return outboard.Errorf(outboard.Invalid, "", "device %q: want cpu, cuda or cuda/INDEX", device)
	}
	provider, err := purego.Dlsym(l.handle, "OrtSessionOptionsAppendExecutionProvider_CUDA")
	if err != nil {
		return outboard.Errorf(outboard.NoDevice, "",
			"device %s: ONNX Runtime %s has no CUDA provider: name a libonnxruntime.so that has it as the model's library", device, l.version)
	}
	status, _, _ := purego.SyscallN(provider, options, uintptr(index))
	return l.statusError(status)
}

// describe reads the model's inputs and outputs.
func (m *Model) describe() error {
	var err error
	if m.inputs, err = m.library.signatures(m.session, fnSessionGetInputCount, fnSessionGetInputName, fnSessionGetInputTypeInfo); err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	if m.outputs, err = m.library.signatures(m.session, fnSessionGetOutputCount, fnSessionGetOutputName, fnSessionGetOutputTypeInfo); err != nil {
		return fmt.Errorf("outputs: %w", err)
	}
	m.info = engine.Info{Platform: Platform, BatchDimension: len(m.inputs) > 0}
	for _, list := range []struct {
		from []signature
		to   *[]model.Signature
	}{{m.inputs, &m.info.Inputs}, {m.outputs, &m.info.Outputs}} {
		for i := range list.from {
			s := &list.from[i]
			*list.to = append(*list.to, s.Signature)
			m.info.BatchDimension = m.info.BatchDimension && len(s.Shape) > 0 && s.Shape[0] < 0
		}
	}
	return nil
}
