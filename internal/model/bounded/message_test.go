package bounded_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// requests are infer requests of clients, which are decoded.
func requests() map[string]*inference.ModelInferRequest {
	input := func(c *inference.InferTensorContents) *inference.ModelInferRequest {
		return &inference.ModelInferRequest{
			ModelName:  "m",
			Parameters: map[string]*inference.InferParameter{"priority": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: 1}}},
			Inputs:     []*inference.ModelInferRequest_InferInputTensor{{Name: "x", Shape: []int64{1, 2}, Contents: c}},
		}
	}
	return map[string]*inference.ModelInferRequest{
		"empty":   {},
		"raw":     {ModelName: "m", RawInputContents: [][]byte{make([]byte, 3<<20)}},
		"ones":    input(&inference.InferTensorContents{Int64Contents: make([]int64, 1<<20)}),
		"floats":  input(&inference.InferTensorContents{Fp32Contents: make([]float32, 1<<20)}),
		"texts":   input(&inference.InferTensorContents{BytesContents: slices.Repeat([][]byte{[]byte("a word")}, 1<<18)}),
		"tensors": {Inputs: slices.Repeat([]*inference.ModelInferRequest_InferInputTensor{{Name: "x"}}, 1024)},
	}
}

func TestMessagesAreDecoded(t *testing.T) {
	for name, q := range requests() {
		encoded, err := proto.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		got := &inference.ModelInferRequest{Id: "before"}
		m := bounded.NewMessage(got)
		if err := proto.Unmarshal(encoded, m); err != nil || m.Refused() != nil || !proto.Equal(got, q) {
			t.Errorf("%s: %v, refused: %v", name, err, m.Refused())
		}
		if proto.Size(m) != len(encoded) {
			t.Errorf("%s has %d bytes, want %d", name, proto.Size(m), len(encoded))
		}
	}
}

// A message whose encoding stands for much more memory is refused, and nothing of it is decoded.
func TestMessagesAreBounded(t *testing.T) {
	field := func(number protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	contents := field(5, slices.Repeat(field(8, nil), 1<<20)) // of an input, with empty texts
	for name, encoded := range map[string][]byte{
		"empty inputs":               slices.Repeat(field(5, nil), 1<<20),
		"empty outputs":              slices.Repeat(field(6, nil), 1<<20),
		"empty parameters":           slices.Repeat(field(4, nil), 1<<20),
		"parameters within an input": field(5, slices.Repeat(field(4, nil), 1<<20)),
		"raw contents":               slices.Repeat(field(7, nil), 1<<20),
		"empty texts":                field(5, contents),
	} {
		got := &inference.ModelInferRequest{}
		m := bounded.NewMessage(got)
		err := proto.Unmarshal(encoded, m)
		if err != nil || outboard.KindOf(m.Refused()) != outboard.Invalid || proto.Size(got) > 0 {
			t.Errorf("%s: %v, refused: %v, %d bytes", name, err, m.Refused(), proto.Size(got))
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, q := range requests() {
		if encoded, err := proto.Marshal(q); err == nil && len(encoded) < 1<<10 {
			f.Add(encoded)
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		want, got := &inference.ModelInferRequest{}, &inference.ModelInferRequest{}
		m := bounded.NewMessage(got)
		wrong, err := proto.Unmarshal(encoded, want), proto.Unmarshal(encoded, m)
		if m.Refused() == nil && ((wrong == nil) != (err == nil) || !proto.Equal(got, want)) {
			t.Errorf("%v, want %v", err, wrong)
		}
	})
}
