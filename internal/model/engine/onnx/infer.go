package onnx

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A Model is a session of ONNX Runtime.
type Model struct {
	library *library
	session uintptr
	info    engine.Info
	inputs  []signature
	outputs []signature

	places  chan struct{}  // bounds the concurrent calls: each blocks a thread
	running sync.WaitGroup // calls
	mu      sync.Mutex
	runs    map[*run]struct{} // runs that execute; nil after Close
	// undeclaredShape is set when an output's shape differed from the shape in its signature.
	undeclaredShape atomic.Bool
}

var (
	_ engine.TensorModel     = (*Model)(nil)
	_ engine.OutputAllocator = (*Model)(nil)
)

// Info implements engine.Model.
func (m *Model) Info() engine.Info { return m.info }

// Close implements engine.Model. It terminates running calls and waits for them.
func (m *Model) Close() error {
	m.mu.Lock()
	closed := m.runs == nil
	for r := range m.runs {
		r.terminate()
	}
	m.runs = nil
	m.mu.Unlock()
	m.running.Wait()
	if !closed {
		m.library.release(fnReleaseSession, m.session)
	}
	return nil
}

// begin registers a call that is about to execute. It reports false if the model is closed.
func (m *Model) begin(r *run) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs == nil {
		return false
	}
	m.runs[r] = struct{}{}
	m.running.Add(1)
	return true
}

// end removes a call, and reports whether the model was closed while it was running.
func (m *Model) end(r *run) (closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	closed = m.runs == nil
	delete(m.runs, r)
	m.running.Done()
	return closed
}

var errClosed = outboard.Errorf(outboard.Unreachable, "infer", "the model has been unloaded")

// Infer implements engine.TensorModel.
func (m *Model) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	return m.InferInto(ctx, inputs, outputs, func(size int) ([]byte, error) { return make([]byte, size), nil })
}

// InferInto implements engine.OutputAllocator. The library itself writes outputs whose shapes are
// known before the call to the allocated memory; other outputs are copied once.
func (m *Model) InferInto(ctx context.Context, inputs []model.Tensor, outputs []string, allocate engine.Allocate) ([]model.Tensor, error) {
	select {
	case m.places <- struct{}{}:
		defer func() { <-m.places }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, err := m.newRun(inputs, outputs, allocate)
	defer r.release()
	if err != nil {
		return nil, err
	}
	if err = r.execute(ctx); err != nil && !m.undeclaredShape.Load() && strings.Contains(err.Error(), "shape verification failed") {
		// The file declares another shape than it computes: outputs are copied from now on.
		m.undeclaredShape.Store(true)
		r.unbind()
		err = r.execute(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.results(allocate)
}

// A run is one call of a session.
type run struct {
	model   *Model
	library *library
	pins    runtime.Pinner
	names   []uintptr // of inputs, then outputs
	values  []uintptr // of inputs, then outputs; a 0 output is allocated by the library
	inputs  int
	outputs []model.Tensor
	wanted  []*signature
	options uintptr
}

// newRun prepares a call. The run has to be released even if there is an error.
func (m *Model) newRun(inputs []model.Tensor, outputs []string, allocate engine.Allocate) (*run, error) {
	r := &run{model: m, library: m.library, inputs: len(inputs)}
	if len(inputs) > maxValues {
		return r, outboard.Errorf(outboard.Invalid, "infer", "%d inputs", len(inputs))
	}
	for i := range inputs {
		if err := r.addInput(&inputs[i]); err != nil {
			return r, outboard.Errorf(outboard.Invalid, "infer", "input %q: %w", inputs[i].Name, err)
		}
	}
	for i := range m.outputs {
		if len(outputs) == 0 || slices.Contains(outputs, m.outputs[i].Name) {
			if err := r.addOutput(&m.outputs[i], inputs, allocate); err != nil {
				return r, err
			}
		}
	}
	if len(r.wanted) == 0 || len(outputs) > len(r.wanted) {
		return r, outboard.Errorf(outboard.Invalid, "infer", "outputs %q: the model has %s", outputs, m.outputNames())
	}
	return r, r.library.call(fnCreateRunOptions, pin(&r.pins, &r.options))
}

func (m *Model) outputNames() string {
	var names []string
	for i := range m.outputs {
		names = append(names, m.outputs[i].Name)
	}
	return strings.Join(names, ", ")
}

// kindOf returns ONNX Runtime's number for a data type.
func kindOf(t model.DataType) uintptr {
	for kind, known := range elementTypes {
		if known == t {
			return kind
		}
	}
	return 0
}

func (r *run) addInput(t *model.Tensor) error {
	n, ok := model.Elements(t.Shape)
	if !ok || len(t.Shape) > maxRank {
		return outboard.Errorf(outboard.Invalid, "", "shape %v", t.Shape)
	}
	if t.Type != model.Bytes && len(t.Data) != n*t.Type.Size() {
		return outboard.Errorf(outboard.Invalid, "", "%d bytes of data: shape %v of %v has %d", len(t.Data), t.Shape, t.Type, n*t.Type.Size())
	}
	var value uintptr
	var err error
	if t.Type == model.Bytes {
		value, err = r.stringValue(t, n)
	} else {
		value, err = r.wrap(t.Data, t.Shape, kindOf(t.Type))
	}
	if err != nil {
		return err
	}
	r.names, r.values = append(r.names, cString(&r.pins, t.Name)), append(r.values, value)
	return nil
}

// wrap creates a value from memory, which stays pinned until the run is released.
func (r *run) wrap(data []byte, shape []int64, kind uintptr) (value uintptr, err error) {
	out := new(uintptr)
	address := pinSlice(&r.pins, data)
	if address == 0 {
		address = pin(&r.pins, new(uint64)) // the library requires an address even for no elements
	}
	err = r.library.call(fnCreateTensorWithDataAsOrtValue, r.library.memory, address, uintptr(len(data)),
		pinSlice(&r.pins, shape), uintptr(len(shape)), kind, pin(&r.pins, out))
	return *out, err
}

// addOutput binds an output to memory of the caller if its shape is known.
func (r *run) addOutput(s *signature, inputs []model.Tensor, allocate engine.Allocate) error {
	r.wanted = append(r.wanted, s)
	out := model.Tensor{Name: s.Name, Type: s.Type}
	value := uintptr(0)
	shape, size := s.resolve(r.model.inputs, inputs)
	if size > 0 && !r.model.undeclaredShape.Load() {
		data, err := allocate(size)
		if err != nil {
			return err
		}
		out.Shape, out.Data = shape, data
		if value, err = r.wrap(data, shape, s.kind); err != nil {
			return err
		}
	}
	r.outputs = append(r.outputs, out)
	r.names, r.values = append(r.names, cString(&r.pins, s.Name)), append(r.values, value)
	return nil
}

// resolve returns the shape and size in bytes of an output for given inputs. The size is 0 if they
// are not known before the computation.
func (s *signature) resolve(declared []signature, inputs []model.Tensor) ([]int64, int) {
	shape := slices.Clone(s.Shape)
	for i, d := range shape {
		if d >= 0 {
			continue
		}
		if shape[i] = symbolValue(s.symbols[i], declared, inputs); shape[i] < 0 {
			return nil, 0
		}
	}
	n, ok := model.Elements(shape)
	if !ok || s.Type == model.Bytes || n > maxOutput {
		return nil, 0
	}
	return shape, n * s.Type.Size()
}

// maxOutput is the most elements of an output that is allocated by the shape that a file declares.
const maxOutput = 1 << 28

// symbolValue returns the size of the dimension with a symbolic name by the inputs, or -1.
func symbolValue(symbol string, declared []signature, inputs []model.Tensor) int64 {
	if symbol == "" {
		return -1
	}
	for i := range declared {
		at := slices.Index(declared[i].symbols, symbol)
		if at < 0 {
			continue
		}
		for j := range inputs {
			if inputs[j].Name == declared[i].Name && at < len(inputs[j].Shape) {
				return inputs[j].Shape[at]
			}
		}
	}
	return -1
}

// unbind makes the library allocate all outputs.
func (r *run) unbind() {
	for i := range r.outputs {
		r.library.release(fnReleaseValue, r.values[r.inputs+i])
		r.values[r.inputs+i] = 0
		r.outputs[i].Shape, r.outputs[i].Data = nil, nil
	}
}

// execute runs the session and terminates it when ctx ends or the model is closed.
func (r *run) execute(ctx context.Context) error {
	if !r.model.begin(r) {
		return errClosed
	}
	passed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(passed)
		r.terminate()
	})
	in, out := uintptr(r.inputs), uintptr(len(r.outputs))
	pointerSize := unsafe.Sizeof(in)
	names, values := pinSlice(&r.pins, r.names), pinSlice(&r.pins, r.values)
	err := r.library.call(fnRun, r.model.session, r.options, names, values, in, names+in*pointerSize, out, values+in*pointerSize)
	if !stop() {
		<-passed // terminate uses the options
	}
	closed := r.model.end(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && closed:
		return errClosed
	}
	return err
}

// terminate makes the library end the call.
func (r *run) terminate() { _ = r.library.call(fnRunOptionsSetTerminate, r.options) }

// results returns the outputs; it copies the outputs that the library allocated.
func (r *run) results(allocate engine.Allocate) ([]model.Tensor, error) {
	for i := range r.outputs {
		if out := &r.outputs[i]; out.Data == nil {
			if err := r.copyOutput(out, r.values[r.inputs+i], allocate); err != nil {
				return nil, outboard.Errorf(outboard.Invalid, "infer", "output %q: %w", out.Name, err)
			}
		}
	}
	return r.outputs, nil
}

func (r *run) copyOutput(t *model.Tensor, value uintptr, allocate engine.Allocate) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	var isTensor uint32
	var tensor, address uintptr
	if err := r.library.call(fnIsTensor, value, pin(&pins, &isTensor)); err != nil || isTensor == 0 {
		return outboard.Errorf(outboard.Invalid, "", "it is no tensor")
	}
	if err := r.library.call(fnGetTensorTypeAndShape, value, pin(&pins, &tensor)); err != nil {
		return err
	}
	kind, shape, err := r.library.readShape(tensor)
	r.library.release(fnReleaseTensorTypeAndShapeInfo, tensor)
	if err != nil {
		return err
	}
	n, ok := model.Elements(shape)
	t.Shape, t.Type = shape, elementTypes[kind]
	if !ok || t.Type == model.Invalid {
		return outboard.Errorf(outboard.Invalid, "", "shape %v of ONNX's type %d", shape, kind)
	}
	if t.Type == model.Bytes {
		t.Data, err = r.strings(value, n, allocate)
		return err
	}
	size := n * t.Type.Size()
	if t.Data, err = allocate(size); err != nil || size == 0 {
		return err
	}
	if err := r.library.call(fnGetTensorMutableData, value, pin(&pins, &address)); err != nil {
		return err
	}
	copy(t.Data, unsafe.Slice((*byte)(foreign(address)), size))
	return nil
}

// release frees the objects and the pinned memory of the run.
func (r *run) release() {
	for _, v := range r.values {
		r.library.release(fnReleaseValue, v)
	}
	r.library.release(fnReleaseRunOptions, r.options)
	r.pins.Unpin()
}
