package inference

import (
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// AddTensors adds inputs as raw contents, without copying them, and the names of outputs to a request.
func (x *ModelInferRequest) AddTensors(inputs []model.Tensor, outputs []string) {
	for i := range inputs {
		t := &inputs[i]
		x.Inputs = append(x.Inputs, &ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Type.String(), Shape: t.Shape})
		x.RawInputContents = append(x.RawInputContents, t.Data)
	}
	for _, name := range outputs {
		x.Outputs = append(x.Outputs, &ModelInferRequest_InferRequestedOutputTensor{Name: name})
	}
}

// maxRank is the most dimensions of a tensor of a response.
const maxRank = 64

// Tensors returns the outputs of a response from a server that is not trusted, with raw or typed
// contents. Each has as many bytes as its shape and type require.
func (x *ModelInferResponse) Tensors() ([]model.Tensor, error) {
	raw := x.GetRawOutputContents()
	if len(raw) > 0 && len(raw) != len(x.GetOutputs()) {
		return nil, outboard.Errorf(outboard.Protocol, "", "the response has %d outputs and %d raw contents", len(x.GetOutputs()), len(raw))
	}
	list := make([]model.Tensor, len(x.GetOutputs()))
	for i, out := range x.GetOutputs() {
		var contents []byte
		if len(raw) > 0 {
			contents = raw[i]
		}
		var err error
		if list[i], err = out.tensor(contents, len(raw) > 0); err != nil {
			return nil, outboard.Errorf(outboard.Protocol, "", "output %.100q: %w", out.GetName(), err)
		}
	}
	return list, nil
}

// tensor returns an output with raw or with its own contents.
func (x *ModelInferResponse_InferOutputTensor) tensor(raw []byte, isRaw bool) (t model.Tensor, err error) {
	t = model.Tensor{Name: x.GetName(), Shape: x.GetShape(), Data: raw}
	if t.Type, err = model.ParseDataType(x.GetDatatype()); err != nil {
		return t, err
	}
	if len(t.Shape) > maxRank {
		return t, outboard.Errorf(outboard.Protocol, "", "its shape has %d dimensions, at most %d are allowed", len(t.Shape), maxRank)
	}
	n, ok := model.Elements(t.Shape)
	if !ok {
		return t, outboard.Errorf(outboard.Protocol, "", "it has the shape %v", t.Shape)
	}
	switch {
	case isRaw && proto.Size(x.GetContents()) > 0: // MLServer adds empty contents
		return t, outboard.Errorf(outboard.Protocol, "", "it has raw and typed contents")
	case !isRaw && n == 0:
		return t, nil
	case !isRaw:
		t.Data, err = TypedData(x.GetContents(), t.Type, n)
		return t, err
	case t.Type == model.Bytes:
		return t, t.CheckElements(n)
	case n > len(raw) || n*t.Type.Size() != len(raw):
		return t, outboard.Errorf(outboard.Protocol, "", "it has %d bytes of data, its shape %v of %v requires %d elements", len(raw), t.Shape, t.Type, n)
	}
	return t, nil
}
