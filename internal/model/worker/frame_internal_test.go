package worker

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/wire"
)

func encoded(frame encodable) []byte {
	e := wire.NewEncoder(nil)
	frame.encode(&e)
	return bytes.Clone(e.Body())
}

// FuzzFrames: whatever a worker that a model has taken over sends, and whatever its node sends, a frame
// that is accepted has tensors whose sizes are those of their shapes, and none outside of its memory.
func FuzzFrames(f *testing.F) {
	tensors := []placed{
		{Tensor: model.Tensor{Name: "a", Type: model.FP32, Shape: []int64{2, 3}}, offset: 8, size: 24},
		{Tensor: model.Tensor{Name: "b", Type: model.Bytes, Shape: []int64{1}}, extra: 1, offset: 1 << 62, size: 1 << 63},
	}
	f.Add(encoded(&reply{id: 1, failure: "no", outputs: tensors}))
	f.Add(encoded(&request{op: opInfer, id: 2, segment: 3, outputOffset: 4, inputs: tensors, outputs: []string{"x", ""}}))
	memory := make([]byte, 64)
	f.Fuzz(func(t *testing.T, body []byte) {
		check := func(list []placed) {
			for i := range list {
				p := &list[i]
				elements, ok := model.Elements(p.Shape)
				if !ok || p.Type != model.Bytes && p.size != uint64(elements*p.Type.Size()) {
					t.Errorf("a tensor of shape %v has %d bytes", p.Shape, p.size)
				}
				if b, err := p.within(memory); err == nil && uint64(len(b)) != p.size {
					t.Errorf("%d bytes in memory where %d are due", len(b), p.size)
				}
			}
		}
		var r, again reply
		if d := wire.NewDecoder(body); r.decode(&d) == nil {
			check(r.outputs)
			d := wire.NewDecoder(encoded(&r))
			if err := again.decode(&d); err != nil {
				t.Errorf("what it has encoded: %v", err)
			}
			if diff := cmp.Diff(r, again, cmp.AllowUnexported(reply{}, placed{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		}
		var q request
		if d := wire.NewDecoder(body); q.decode(&d) == nil {
			check(q.inputs)
			if len(q.outputs) > maxTensors {
				t.Errorf("%d outputs", len(q.outputs))
			}
		}
	})
}
