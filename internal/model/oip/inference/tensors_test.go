package inference_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// response returns a response with tensors, raw or typed.
func response(t testing.TB, typed bool, tensors ...model.Tensor) *inference.ModelInferResponse {
	t.Helper()
	r := &inference.ModelInferResponse{}
	for i := range tensors {
		out := &inference.ModelInferResponse_InferOutputTensor{Name: tensors[i].Name, Datatype: tensors[i].Type.String(), Shape: tensors[i].Shape}
		if typed {
			var err error
			if out.Contents, err = inference.ContentsOf(&tensors[i]); err != nil {
				t.Fatal(err)
			}
		} else {
			r.RawOutputContents = append(r.RawOutputContents, tensors[i].Data)
		}
		r.Outputs = append(r.Outputs, out)
	}
	return r
}

func TestTensors(t *testing.T) {
	want := []model.Tensor{
		{Name: "a", Type: model.Int8, Shape: []int64{2}, Data: []byte{1, 0xff}},
		{Name: "b", Type: model.Bytes, Shape: []int64{1, 2}, Data: []byte("\x01\x00\x00\x00x\x00\x00\x00\x00")},
		{Name: "c", Type: model.Bool, Shape: []int64{}, Data: []byte{1}},
	}
	for _, typed := range []bool{false, true} {
		got, err := response(t, typed, want...).Tensors()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("typed %v: %v %s", typed, err, diff)
		}
	}
}

// Raw contents exclude typed contents, except for empty ones, which MLServer sends.
func TestRawAndTypedContents(t *testing.T) {
	r := response(t, false, model.Tensor{Name: "a", Type: model.Int8, Shape: []int64{1}, Data: []byte{5}})
	r.Outputs[0].Contents = &inference.InferTensorContents{}
	if list, err := r.Tensors(); err != nil || string(list[0].Data) != "\x05" {
		t.Errorf("empty contents: %v, %v", list, err)
	}
	r.Outputs[0].Contents.IntContents = []int32{5}
	if _, err := r.Tensors(); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("contents: %v", err)
	}
}

// A response comes from a server that may send anything; its outputs have the sizes of their shapes.
func FuzzTensors(f *testing.F) {
	for _, typed := range []bool{false, true} {
		b, err := proto.Marshal(response(f, typed,
			model.Tensor{Name: "a", Type: model.FP32, Shape: []int64{2}, Data: make([]byte, 8)},
			model.Tensor{Name: "b", Type: model.Bytes, Shape: []int64{2}, Data: []byte("\x01\x00\x00\x00x\x00\x00\x00\x00")}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r inference.ModelInferResponse
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		list, err := r.Tensors()
		if err != nil {
			if outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("%v has the kind %v", err, outboard.KindOf(err))
			}
			return
		}
		for i := range list {
			n, ok := model.Elements(list[i].Shape)
			if !ok || list[i].Type != model.Bytes && n*list[i].Type.Size() != len(list[i].Data) {
				t.Errorf("%v has %d bytes", list[i].Shape, len(list[i].Data))
			}
			if list[i].Type == model.Bytes {
				if err := list[i].CheckElements(n); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
