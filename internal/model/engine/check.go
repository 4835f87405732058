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
	if rows > 1 && !slices.ContainsFunc(inputs, func(t model.Tensor) bool { return len(t.Data) > 0 }) {
		// Queues and engines reckon with rows, which would cost the client nothing.
		return 0, wrong("the batch of %d has no elements", rows)
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
