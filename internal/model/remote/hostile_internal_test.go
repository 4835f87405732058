package remote

import (
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// The outputs of another node have the sizes of their shapes: a node that does not serve a model but
// answers for it can't have this node read beyond their data, or allocate by a wrong shape.
func TestOutputsOfHostileNodes(t *testing.T) {
	type output = inference.ModelInferResponse_InferOutputTensor
	for name, c := range map[string]struct {
		output *output
		data   []byte
		valid  bool
	}{
		"valid":    {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 8), true},
		"short":    {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 7), false},
		"long":     {&output{Name: "y", Datatype: "FP32", Shape: []int64{1, 2}}, make([]byte, 12), false},
		"negative": {&output{Name: "y", Datatype: "FP32", Shape: []int64{-1, -2}}, make([]byte, 8), false},
		"huge":     {&output{Name: "y", Datatype: "FP64", Shape: []int64{1 << 62}}, make([]byte, 8), false},
		"elements": {&output{Name: "y", Datatype: "BYTES", Shape: []int64{1}}, []byte{9, 0, 0, 0, 1}, false},
	} {
		reply := &inference.ModelInferResponse{ModelVersion: "1", Outputs: []*output{c.output}, RawOutputContents: [][]byte{c.data}}
		_, err := readResponse("ketch", reply)
		if c.valid != (err == nil) || err != nil && outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}
