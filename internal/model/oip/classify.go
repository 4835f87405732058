package oip

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// classify implements the extension classification: it returns for each row of an output the n
// largest elements, as texts "VALUE:INDEX".
func classify(t model.Tensor, parameters map[string]json.RawMessage) (model.Tensor, error) {
	n, ok, err := parameter[int](parameters, "classification")
	if err != nil || !ok || n == 0 {
		return t, err
	}
	return classifyTensor(t, n)
}

func classifyTensor(t model.Tensor, n int) (model.Tensor, error) {
	if t.Type != model.FP32 && t.Type != model.FP64 || len(t.Shape) == 0 || n < 0 {
		return t, outboard.Errorf(outboard.Invalid, "infer", "output %q of %v %v can't be classified", t.Name, t.Type, t.Shape)
	}
	width := int(t.Shape[len(t.Shape)-1])
	n = min(n, width)
	out := model.Tensor{Name: t.Name, Type: model.Bytes, Shape: append(slices.Clone(t.Shape[:len(t.Shape)-1]), int64(n))}
	if len(t.Data) == 0 {
		return out, nil // without rows the width may be any number, which the client may have chosen
	}
	value := func(i int) float64 {
		if t.Type == model.FP32 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	order := make([]int, width)
	for row := range len(t.Data) / t.Type.Size() / width {
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch x, y := value(row*width+a), value(row*width+b); {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return 0
		})
		for _, i := range order[:n] {
			text := fmt.Sprintf("%f:%d", value(row*width+i), i)
			out.Data = binary.LittleEndian.AppendUint32(out.Data, uint32(len(text)))
			out.Data = append(out.Data, text...)
		}
	}
	return out, nil
}
