package serve

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/outboard-run/outboard/internal/model"
)

func TestCompareTensors(t *testing.T) {
	floats := func(values ...float32) *model.Tensor {
		x := &model.Tensor{Name: "y", Type: model.FP32, Shape: []int64{int64(len(values))}}
		for _, v := range values {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(v))
		}
		return x
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		got, want *model.Tensor
		same      bool
	}{
		"equal":          {floats(1, nan, inf), floats(1, nan, inf), true},
		"near":           {floats(1000.5), floats(1000), true},
		"far":            {floats(1.1), floats(1), false},
		"a NaN":          {floats(nan), floats(1), false},
		"an infinity":    {floats(inf), floats(1), false},
		"other shape":    {floats(1), floats(1, 1), false},
		"other integers": {&model.Tensor{Type: model.Int8, Data: []byte{1}}, &model.Tensor{Type: model.Int8, Data: []byte{2}}, false},
	} {
		if err := compareTensors(c.got, c.want, defaultTolerance); (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzPairs(f *testing.F) {
	f.Add([]byte(`[{"inputs":{"x":[0]},"outputs":{"y":[98]}}]`))
	f.Add([]byte(`[{"prompt":"a","text":"b"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parsePairs(text)
		for i := range list {
			if err == nil && (len(list[i].Inputs) > 0) == (list[i].Prompt != "") {
				t.Errorf("accepted %+v", list[i])
			}
		}
	})
}
