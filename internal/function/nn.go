package function

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/outboard-run/outboard"
)

// nnModule is the module of wasi-nn, by its specification in WITX (github.com/WebAssembly/wasi-nn;
// load_by_name and the codes are those of wasmtime's crates/wasi-nn/witx/wasi-nn.witx).
const nnModule = "wasi_ephemeral_nn"

// A Model is a model of the pool that computes tensors.
type Model interface {
	Resource
	// Inputs and Outputs are the names of its tensors, in its order.
	Inputs() []string
	Outputs() []string
	// Infer computes all outputs, in the order of Outputs. The data of the inputs are only read.
	Infer(ctx context.Context, inputs []ModelTensor) ([]ModelTensor, error)
}

// A ModelTensor is an input or output of a Model. Type is named as in the Open Inference Protocol
// ("FP32"); Data are row-major and little-endian.
type ModelTensor struct {
	Name  string
	Type  string
	Shape []int64
	Data  []byte
}

// The codes of wasi-nn ($nn_errno).
const (
	nnSuccess uint64 = iota
	nnInvalidArgument
	nnInvalidEncoding
	nnMissingMemory
	nnBusy
	nnRuntimeError
	nnUnsupportedOperation
	nnTooLarge
	nnNotFound
)

// Bounds of wasi-nn in one call.
const (
	maxNNContexts = 64
	maxNNInputs   = 256
	maxNNRank     = 32
)

// nnState is what a call has of wasi-nn. A graph's handle is that of its import, a context's the
// index in contexts, from 1.
type nnState struct {
	contexts []nnContext
	held     int64 // bytes of tensors, which the function's limit of memory bounds
}

// An nnContext is an execution context: the inputs that were set, and the outputs of the last
// computation.
type nnContext struct {
	graph   int32
	inputs  []ModelTensor
	outputs []ModelTensor
}

// An nnError is an error with its code in wasi-nn.
type nnError struct {
	code uint64
	err  error
}

func (e *nnError) Error() string { return e.err.Error() }
func (e *nnError) Unwrap() error { return e.err }

func nnErrorf(code uint64, format string, args ...any) error {
	return &nnError{code, fmt.Errorf(format, args...)}
}

// nnCode returns the code for an error.
func nnCode(err error) uint64 {
	if known, ok := errors.AsType[*nnError](err); ok {
		return known.code
	}
	switch outboard.KindOf(err) { //nolint:exhaustive // the others are errors of the runtime
	case outboard.Invalid:
		return nnInvalidArgument
	case outboard.NotFound, outboard.Denied:
		return nnNotFound
	case outboard.Busy, outboard.Exhausted:
		return nnBusy
	}
	return nnRuntimeError
}

// provideNN makes the module of wasi-nn. An error's text goes to the function's standard error and,
// for guests that know the module outboard, is the result.
func provideNN(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(nnModule)
	for _, f := range []struct {
		name   string
		params int
		run    func(c *invocation, stack []uint64) error
	}{
		{"load", 5, nnLoad},
		{"load_by_name", 3, nnLoadByName},
		{"init_execution_context", 2, nnInitContext},
		{"set_input", 3, nnSetInput},
		{"compute", 1, nnCompute},
		{"get_output", 5, nnGetOutput},
	} {
		params := []api.ValueType{i32, i32, i32, i32, i32}[:f.params]
		export(b, f.name, func(ctx context.Context, _ api.Module, stack []uint64) {
			c := invocationOf(ctx)
			err := f.run(c, stack)
			if stack[0] = nnSuccess; c.reportError(err) {
				stack[0] = nnCode(err)
				_, _ = fmt.Fprintf(&c.slot.stderr, "wasi-nn: %s: %v\n", f.name, err) // it has a limit
			}
		}, params, i32)
	}
	_, err := b.Instantiate(ctx)
	return err
}

func nnLoad(*invocation, []uint64) error {
	return nnErrorf(nnUnsupportedOperation, "a function brings no model: push one to the pool, and use load_by_name")
}

func nnLoadByName(c *invocation, stack []uint64) error {
	name, err := c.readArgument("a name", stack, maxName)
	if err != nil {
		return nnErrorf(nnInvalidArgument, "%w", err)
	}
	out := uint32(stack[2])
	graph, err := c.importName("model:" + string(name))
	if err != nil {
		return err
	}
	return writeU32(c, out, uint32(graph))
}

// writeU32 writes a result to the function's memory.
func writeU32(c *invocation, at, value uint32) error {
	if !c.slot.instance.Memory().WriteUint32Le(at, value) {
		return nnErrorf(nnInvalidArgument, "%w", errOutside)
	}
	return nil
}

// modelOf returns the model of a graph.
func modelOf(c *invocation, graph int32) (Model, *handle, error) {
	m, h, err := resourceAs[Model](c, graph, "model")
	if err != nil {
		return nil, nil, nnErrorf(nnInvalidArgument, "%w", err)
	}
	return m, h, nil
}

func nnInitContext(c *invocation, stack []uint64) error {
	graph := int32(stack[0])
	if _, _, err := modelOf(c, graph); err != nil {
		return err
	}
	if len(c.nn.contexts) == maxNNContexts {
		return nnErrorf(nnTooLarge, "a call may have %d execution contexts", maxNNContexts)
	}
	c.nn.contexts = append(c.nn.contexts, nnContext{graph: graph})
	return writeU32(c, uint32(stack[1]), uint32(len(c.nn.contexts)))
}

// contextOf returns the execution context of a handle.
func contextOf(c *invocation, number uint64) (*nnContext, error) {
	if n := uint32(number); n >= 1 && int(n) <= len(c.nn.contexts) {
		return &c.nn.contexts[n-1], nil
	}
	return nil, nnErrorf(nnInvalidArgument, "%d is no execution context of this call", int32(number))
}

func nnSetInput(c *invocation, stack []uint64) error {
	x, err := contextOf(c, stack[0])
	if err != nil {
		return err
	}
	m, _, err := modelOf(c, x.graph)
	if err != nil {
		return err
	}
	index := uint32(stack[1])
	if int(index) >= min(len(m.Inputs()), maxNNInputs) {
		return nnErrorf(nnInvalidArgument, "the model has no input %d: it has %d", index, len(m.Inputs()))
	}
	if x.inputs == nil {
		x.inputs = make([]ModelTensor, len(m.Inputs()))
	}
	old := int64(len(x.inputs[index].Data))
	t, err := readNNTensor(c.slot.instance.Memory().Read, uint32(stack[2]), nnRoom(c)+old)
	if err != nil {
		return err
	}
	t.Name = m.Inputs()[index]
	c.nn.held += int64(len(t.Data)) - old
	c.copied += int64(len(t.Data))
	c.slot.meter.chargeBytes(len(t.Data))
	x.inputs[index] = t
	return nil
}

// nnRoom is how many bytes of tensors the call may hold yet.
func nnRoom(c *invocation) int64 { return max(0, int64(c.slot.limits.Memory)-c.nn.held) }

// nnTypes are the data types of wasi-nn ($tensor_type), by their numbers.
//
//nolint:gochecknoglobals // a table
var nnTypes = []string{"FP16", "FP32", "FP64", "UINT8", "INT32", "INT64"}

// readNNTensor reads a tensor of wasi-nn at an address: the dimensions (address and number), the
// type, and the data (address and size, at most room). The data are copied.
func readNNTensor(memory func(at, size uint32) ([]byte, bool), at uint32, available int64) (t ModelTensor, err error) {
	outside := nnErrorf(nnInvalidArgument, "a tensor: %w", errOutside)
	record, ok := memory(at, 20)
	if !ok {
		return t, outside
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(record[at:]) }
	rank, kind, size := word(4), record[8], word(16)
	switch {
	case rank > maxNNRank:
		return t, nnErrorf(nnInvalidArgument, "a tensor has %d dimensions: at most %d are allowed", rank, maxNNRank)
	case int(kind) >= len(nnTypes):
		return t, nnErrorf(nnInvalidArgument, "a tensor has the type %d, which wasi-nn has not", kind)
	case int64(size) > available:
		return t, nnErrorf(nnTooLarge, "a tensor of %v: the function's limit of memory leaves %v", outboard.Bytes(size), outboard.Bytes(available))
	}
	dimensions, ok := memory(word(0), 4*rank)
	if !ok {
		return t, outside
	}
	for d := range rank {
		t.Shape = append(t.Shape, int64(binary.LittleEndian.Uint32(dimensions[4*d:])))
	}
	data, ok := memory(word(12), size)
	if !ok {
		return t, outside
	}
	t.Type, t.Data = nnTypes[kind], append([]byte{}, data...)
	return t, nil
}

func nnCompute(c *invocation, stack []uint64) error {
	x, err := contextOf(c, stack[0])
	if err != nil {
		return err
	}
	m, h, err := modelOf(c, x.graph)
	if err != nil {
		return err
	}
	for i, name := range m.Inputs() {
		if i >= len(x.inputs) || x.inputs[i].Type == "" {
			return nnErrorf(nnInvalidArgument, "input %d, %q, is not set", i, name)
		}
	}
	c.nn.release(x)
	outputs, err := inferNN(c, m, h.record, x.inputs)
	if err != nil {
		return err
	}
	var size int64
	for i := range outputs {
		size += int64(len(outputs[i].Data))
	}
	if size > nnRoom(c) {
		return nnErrorf(nnTooLarge, "the outputs are %v: the function's limit of memory leaves %v", outboard.Bytes(size), outboard.Bytes(nnRoom(c)))
	}
	c.nn.held += size
	x.outputs = outputs
	return nil
}

// release drops the outputs of a context.
func (n *nnState) release(x *nnContext) {
	for i := range x.outputs {
		n.held -= int64(len(x.outputs[i].Data))
	}
	x.outputs = nil
}

func nnGetOutput(c *invocation, stack []uint64) error {
	x, err := contextOf(c, stack[0])
	if err != nil {
		return err
	}
	index, to, most := uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	switch {
	case x.outputs == nil:
		return nnErrorf(nnInvalidArgument, "nothing was computed yet")
	case int(index) >= len(x.outputs):
		return nnErrorf(nnInvalidArgument, "the model has no output %d: it has %d", index, len(x.outputs))
	}
	data := x.outputs[index].Data
	if uint64(len(data)) > uint64(most) {
		return nnErrorf(nnTooLarge, "output %d has %d bytes, the buffer has %d", index, len(data), most)
	}
	if !c.slot.instance.Memory().Write(to, data) {
		return nnErrorf(nnInvalidArgument, "%w", errOutside)
	}
	c.copied += int64(len(data))
	c.slot.meter.chargeBytes(len(data))
	return writeU32(c, uint32(stack[4]), uint32(len(data)))
}

// inferNN has a model compute, within the call's deadline, and counts it as a use of the import.
func inferNN(c *invocation, m Model, record int, inputs []ModelTensor) ([]ModelTensor, error) {
	begin := time.Now()
	outputs, err := m.Infer(c.context(), inputs)
	use := c.imports.recordUse(record, begin)
	for i := range inputs {
		use.Copied += int64(len(inputs[i].Data))
	}
	for i := range outputs {
		use.Copied += int64(len(outputs[i].Data))
	}
	return outputs, err
}
