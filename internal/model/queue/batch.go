package queue

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// batchKey returns a string that is the same for all requests of a batch: of their outputs, and of
// names, types and shapes of inputs without the first dimension. With padding only the ranks have
// to be equal.
func batchKey(r *Request, pad bool) string {
	var key strings.Builder
	for i := range r.Inputs {
		t := &r.Inputs[i]
		if pad {
			fmt.Fprintf(&key, "%q %d %d;", t.Name, t.Type, len(t.Shape))
		} else {
			fmt.Fprintf(&key, "%q %d %v;", t.Name, t.Type, t.Shape[min(1, len(t.Shape)):])
		}
	}
	for _, name := range r.Outputs {
		fmt.Fprintf(&key, " %q", name)
	}
	return key.String()
}

// joinInputs returns the inputs of a batch.
func joinInputs(batch []*item) ([]Input, error) {
	first := batch[0]
	list := make([]Input, len(first.Inputs))
	for i := range first.Inputs {
		t := &first.Inputs[i]
		in := Input{Name: t.Name, Type: t.Type, Shape: t.Shape, Parts: make([][]byte, 0, len(batch))}
		if len(batch) > 1 {
			in.Shape = largestShape(batch, i)
		}
		for _, it := range batch {
			part := &it.Inputs[i]
			data := part.Data
			if !slices.Equal(part.Shape[min(1, len(part.Shape)):], in.Shape[min(1, len(in.Shape)):]) {
				var err error
				if data, err = padRows(part, in.Shape); err != nil {
					return nil, err
				}
			}
			in.Parts = append(in.Parts, data)
		}
		list[i] = in
	}
	return list, nil
}

// largestShape returns the shape of input i of a batch: the sum of the rows, and the largest of
// each other dimension.
func largestShape(batch []*item, i int) []int64 {
	shape := slices.Clone(batch[0].Inputs[i].Shape)
	for _, it := range batch[1:] {
		for d, size := range it.Inputs[i].Shape {
			if d == 0 {
				shape[0] += size
			} else {
				shape[d] = max(shape[d], size)
			}
		}
	}
	return shape
}

// maxPadding bounds the zeros with which the inputs of a batch are padded, in bytes: one long request
// would otherwise lengthen all others of its batch.
const maxPadding = 64 << 20

// A paddedBatch follows the sizes of the inputs of a batch as requests are added.
type paddedBatch struct {
	rows   int64
	data   int64     // bytes of the inputs as they are
	shapes [][]int64 // of the inputs, the largest of each dimension
}

func newPadding(head *item) *paddedBatch {
	p := &paddedBatch{rows: int64(head.Rows), data: dataBytes(head)}
	for i := range head.Inputs {
		p.shapes = append(p.shapes, slices.Clone(head.Inputs[i].Shape))
	}
	return p
}

func dataBytes(it *item) int64 {
	n := 0
	for i := range it.Inputs {
		n += len(it.Inputs[i].Data)
	}
	return int64(n)
}

// add adds a request, or reports false if the batch would need too much padding with it.
func (p *paddedBatch) add(it *item) bool {
	next := paddedBatch{rows: p.rows + int64(it.Rows), data: p.data + dataBytes(it)}
	size := int64(0)
	for i, shape := range p.shapes {
		t := &it.Inputs[i]
		if t.Type == model.Bytes && !slices.Equal(shape[1:], t.Shape[1:]) {
			return false // such elements can't be padded
		}
		shape = slices.Clone(shape)
		shape[0] = next.rows
		for d := 1; d < len(shape); d++ {
			shape[d] = max(shape[d], t.Shape[d])
		}
		next.shapes = append(next.shapes, shape)
		elements, ok := model.Elements(shape)
		if !ok || elements > math.MaxInt64/8/len(p.shapes) {
			return false
		}
		size += int64(elements) * int64(t.Type.Size())
	}
	if size-next.data > maxPadding {
		return false
	}
	*p = next
	return true
}

// padRows returns the elements of t in a larger shape, with zeros in the remaining places.
func padRows(t *model.Tensor, shape []int64) ([]byte, error) {
	if t.Type == model.Bytes {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "input %q: elements of %v can't be padded", t.Name, t.Type)
	}
	inner, outer := int64(t.Type.Size()), int64(t.Type.Size())
	for d := 1; d < len(shape); d++ {
		outer *= shape[d]
	}
	padded := make([]byte, t.Shape[0]*outer)
	last := len(shape) - 1
	line := t.Shape[last] * inner // contiguous bytes in both tensors
	index := make([]int64, last)
	for from := int64(0); from < int64(len(t.Data)); from += line {
		at := int64(0)
		for d := range last {
			at = at*shapeAt(shape, t.Shape, d) + index[d]
		}
		at *= shape[last] * inner
		copy(padded[at:], t.Data[from:from+line])
		for d := last - 1; d >= 0; d-- {
			if index[d]++; index[d] < t.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return padded, nil
}

// shapeAt returns a dimension of the padded shape; the first dimension is the request's own.
func shapeAt(padded, own []int64, d int) int64 {
	if d == 0 {
		return own[0]
	}
	return padded[d]
}

// splitOutputs assigns each request of a batch its rows of the outputs, which share memory.
func splitOutputs(batch []*item, outputs []model.Tensor) error {
	if len(batch) == 1 {
		batch[0].outputs = outputs
		return nil
	}
	rows := rowsOf(batch)
	for i := range outputs {
		t := &outputs[i]
		if len(t.Shape) == 0 || t.Shape[0] != int64(rows) {
			return outboard.Errorf(outboard.Invalid, "infer",
				"output %q has the shape %v for a batch of %d: its first dimension does not count requests, so the model can't be batched (`batching: {max: 1}`)", t.Name, t.Shape, rows)
		}
		rest := t.Data
		for _, it := range batch {
			size, err := rowBytes(t, rest, rows, it.Rows)
			if err != nil {
				return err
			}
			shape := slices.Clone(t.Shape)
			shape[0] = int64(it.Rows)
			it.outputs = append(it.outputs, model.Tensor{Name: t.Name, Type: t.Type, Shape: shape, Data: rest[:size:size]})
			rest = rest[size:]
		}
	}
	return nil
}

// rowBytes returns the size of the first n of all rows of an output, whose data begin in rest.
func rowBytes(t *model.Tensor, rest []byte, all, n int) (int, error) {
	if t.Type != model.Bytes {
		return len(t.Data) / all * n, nil
	}
	elements, _ := model.Elements(t.Shape)
	size := 0
	for range elements / all * n {
		if len(rest)-size < 4 {
			return 0, outboard.Errorf(outboard.Invalid, "infer", "output %q is truncated", t.Name)
		}
		size += 4 + int(binary.LittleEndian.Uint32(rest[size:]))
		if size > len(rest) {
			return 0, outboard.Errorf(outboard.Invalid, "infer", "output %q is truncated", t.Name)
		}
	}
	return size, nil
}
