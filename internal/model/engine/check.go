package engine

import (
	"math"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// Check validates the inputs and the names of the outputs of a request against the model's
// signature, and returns the rows of the batch dimension, 0 for a model without one. refuseNaN also
// refuses NaNs and infinities. The error is of the kind outboard.Invalid and names the tensor.
func (i *Info) Check(inputs []model.Tensor, outputs []string, refuseNaN bool) (rows int, err error) {
	wrong := func(format string, args ...any) error {
		return outboard.Errorf(outboard.Invalid, "infer", format, args...)
	}
	for n := range inputs {
		t := &inputs[n]
		at := slices.IndexFunc(i.Inputs, func(s model.Signature) bool { return s.Name == t.Name })
		if at < 0 {
			return 0, wrong("the model has no input %q: it has %s", t.Name, Names(i.Inputs))
		}
		sig := &i.Inputs[at]
		switch {
		case slices.ContainsFunc(inputs[:n], func(o model.Tensor) bool { return o.Name == t.Name }):
			return 0, wrong("input %q is there twice", t.Name)
		case t.Type != sig.Type:
			return 0, wrong("input %q has the data type %v, the model wants %v", t.Name, t.Type, sig.Type)
		case !sig.Fits(t.Shape):
			return 0, wrong("input %q has the shape %v, the model wants %v", t.Name, t.Shape, sig.Shape)
		}
		if err := checkData(t, refuseNaN); err != nil {
			return 0, err
		}
		if i.BatchDimension {
			if n > 0 && int64(rows) != t.Shape[0] {
				return 0, wrong("input %q has a batch of %d, input %q one of %d", inputs[0].Name, rows, t.Name, t.Shape[0])
			}
			rows = int(t.Shape[0])
		}
	}
	if rows > maxEmptyRows && !slices.ContainsFunc(inputs, func(t model.Tensor) bool { return len(t.Data) > 0 }) {
		return 0, wrong("input %q has the shape %v without an element: a batch without elements has at most %d rows", inputs[0].Name, inputs[0].Shape, maxEmptyRows)
	}
	for n := range i.Inputs {
		if !slices.ContainsFunc(inputs, func(t model.Tensor) bool { return t.Name == i.Inputs[n].Name }) {
			return 0, wrong("input %q is missing", i.Inputs[n].Name)
		}
	}
	for _, name := range outputs {
		if !slices.ContainsFunc(i.Outputs, func(s model.Signature) bool { return s.Name == name }) {
			return 0, wrong("the model has no output %q: it has %s", name, Names(i.Outputs))
		}
	}
	return rows, nil
}

// maxEmptyRows bounds the rows of a request whose inputs have no elements: queues and engines reckon
// with rows, which would cost the client nothing.
const maxEmptyRows = 1024

// Limits of a description.
const (
	maxSignatures = 4096
	maxNames      = 1 << 20 // bytes of all names together
	maxDimensions = 64
	maxTemplate   = 1 << 20 // bytes
	maxPlatform   = 256
	maxCalls      = 1024
	maxCount      = math.MaxInt32 // of tokens, rows and elements
)

// Validate returns an error unless the description is one that an engine may return. Another process
// or node may have made it: its types and shapes are used to allocate and to index.
func (i *Info) Validate() error {
	wrong := func(format string, args ...any) error {
		return outboard.Errorf(outboard.Protocol, "describe the model", format, args...)
	}
	for _, n := range []int{i.Context, i.Vocabulary, i.Embedding, i.Sequences, i.MaxBatch, i.Calls} {
		if n < 0 || n > maxCount {
			return wrong("a count of %d", n)
		}
	}
	if len(i.ChatTemplate) > maxTemplate || len(i.Platform) > maxPlatform {
		return wrong("a template of %d bytes, and a platform of %d", len(i.ChatTemplate), len(i.Platform))
	}
	if i.Calls > maxCalls || i.Sequences > maxCalls || i.Memory < 0 {
		return wrong("%d calls and %d sequences at once, at most %d are allowed, with %d bytes", i.Calls, i.Sequences, maxCalls, i.Memory)
	}
	if len(i.Inputs) > maxSignatures || len(i.Outputs) > maxSignatures {
		return wrong("%d inputs and %d outputs, at most %d are allowed", len(i.Inputs), len(i.Outputs), maxSignatures)
	}
	names := 0
	for _, s := range slices.Concat(i.Inputs, i.Outputs) {
		if names += len(s.Name); names > maxNames {
			return wrong("the names of its tensors have more than %d bytes", maxNames)
		}
		switch {
		case s.Type == model.Invalid || s.Type > model.Bytes || len(s.Shape) > maxDimensions:
			return wrong("%.100q is of the type %d with %d dimensions", s.Name, s.Type, len(s.Shape))
		case slices.ContainsFunc(s.Shape, func(d int64) bool { return d < -1 }):
			return wrong("%.100q has the shape %v", s.Name, s.Shape)
		case i.BatchDimension && len(s.Shape) == 0:
			return wrong("%.100q has no dimension that could count the requests of a batch", s.Name)
		}
	}
	return nil
}

// Names returns the names of tensors for a message, separated by commas.
func Names(list []model.Signature) string {
	var all []string
	for i := range list {
		all = append(all, list[i].Name)
	}
	return strings.Join(all, ", ")
}

// checkData compares the size of the data with the shape, and searches for NaNs and infinities if
// the model refuses them.
func checkData(t *model.Tensor, refuseNaN bool) error {
	elements, ok := model.Elements(t.Shape)
	if !ok || elements > math.MaxInt/8 {
		return outboard.Errorf(outboard.Invalid, "infer", "input %q has the shape %v", t.Name, t.Shape)
	}
	if size := elements * t.Type.Size(); t.Type != model.Bytes && len(t.Data) != size {
		return outboard.Errorf(outboard.Invalid, "infer", "input %q has %d bytes of data, its shape %v of %v wants %d", t.Name, len(t.Data), t.Shape, t.Type, size)
	}
	if t.Type == model.Bytes {
		return t.CheckElements(elements)
	}
	if refuseNaN {
		if at := t.NotFinite(); at >= 0 {
			return outboard.Errorf(outboard.Invalid, "infer", "input %q: element %d is not finite, and the model refuses such inputs (`nan: refuse`)", t.Name, at)
		}
	}
	return nil
}
