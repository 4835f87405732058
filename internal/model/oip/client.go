package oip

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// EncodeRequest returns the body and the header of an infer request with binary tensors, which
// requests binary outputs. With a timeout of 0 the model's configuration determines it.
func EncodeRequest(inputs []model.Tensor, outputs []string, timeout time.Duration) ([]byte, http.Header, error) {
	type tensor struct {
		Name       string         `json:"name"`
		Type       model.DataType `json:"datatype"`
		Shape      []int64        `json:"shape"`
		Parameters map[string]int `json:"parameters"`
	}
	q := struct {
		Parameters map[string]any      `json:"parameters"`
		Inputs     []tensor            `json:"inputs"`
		Outputs    []map[string]string `json:"outputs,omitempty"`
	}{Parameters: map[string]any{"binary_data_output": true}, Inputs: []tensor{}}
	if timeout > 0 {
		q.Parameters["timeout"] = timeout.Microseconds()
	}
	var tail bytes.Buffer
	for i := range inputs {
		t := &inputs[i]
		q.Inputs = append(q.Inputs, tensor{t.Name, t.Type, t.Shape, map[string]int{"binary_data_size": len(t.Data)}})
		tail.Write(t.Data)
	}
	for _, name := range outputs {
		q.Outputs = append(q.Outputs, map[string]string{"name": name})
	}
	head, err := json.Marshal(q)
	if err != nil {
		return nil, nil, err
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, lengthHeader: {strconv.Itoa(len(head))}}
	return append(head, tail.Bytes()...), header, nil
}

// DecodeResponse parses the outputs of a response, binary or JSON.
func DecodeResponse(body []byte, header http.Header) ([]model.Tensor, error) {
	q, err := parseInfer(body, header.Get(lengthHeader))
	if err != nil {
		return nil, err
	}
	var r struct {
		Outputs []inferInput `json:"outputs"`
	}
	if err := json.Unmarshal(body[:len(body)-len(q.binary)], &r); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "infer", "%w", err)
	}
	h := &Handler{opts: Options{Owner: noOwner}, regions: newRegions(false, noOwner)}
	rest := q.binary
	var list []model.Tensor
	for i := range r.Outputs {
		t, err := h.input(context.Background(), &r.Outputs[i], &rest, &reservation{opts: &h.opts})
		if err != nil {
			return nil, outboard.Errorf(outboard.Protocol, "infer", "output %q: %w", r.Outputs[i].Name, err)
		}
		list = append(list, t)
	}
	return list, nil
}

// ErrorOf returns the error in a response whose status is not OK.
func ErrorOf(status int, body []byte) error {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		e.Error = fmt.Sprintf("status %d: %.200s", status, body)
	}
	kind := outboard.Other
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		kind = outboard.Invalid
	case http.StatusNotFound:
		kind = outboard.NotFound
	case http.StatusServiceUnavailable:
		kind = outboard.Busy
	case http.StatusForbidden:
		kind = outboard.Denied
	}
	return outboard.Errorf(kind, "", "%s", e.Error)
}

// MarshalTensors returns tensors as a JSON array, with their data in the protocol's form.
func MarshalTensors(list []model.Tensor) ([]byte, error) {
	b := []byte{'['}
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTensorHead(b, &list[i])
		b = append(b, `,"data":`...)
		var err error
		if b, err = appendData(b, &list[i]); err != nil {
			return nil, err
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// ParseTensor parses a nested JSON array as a value for an input. Its shape is that of the nesting,
// or the input's if the array is flat and the input's dimensions determine it.
func ParseTensor(text []byte, want *model.Signature) (model.Tensor, error) {
	t := model.Tensor{Name: want.Name, Type: want.Type}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return t, outboard.Errorf(outboard.Invalid, "", "%.40q is no JSON array: %w", text, err)
	}
	for rest := value; ; {
		list, ok := rest.([]any)
		if !ok {
			break
		}
		t.Shape = append(t.Shape, int64(len(list)))
		if len(list) == 0 {
			break
		}
		rest = list[0]
	}
	n, _ := model.Elements(t.Shape)
	if len(t.Shape) == 1 && len(want.Shape) != 1 {
		t.Shape = fillShape(want.Shape, t.Shape[0])
	}
	var err error
	t.Data, err = parseData(text, want.Type, t.Shape, n)
	return t, err
}

// fillShape returns a declared shape whose first variable dimension is set so that the shape has n
// elements; the other variable dimensions are 1.
func fillShape(declared []int64, n int64) []int64 {
	shape, known, first := make([]int64, len(declared)), int64(1), -1
	for d, size := range declared {
		shape[d] = size
		if size < 0 {
			shape[d] = 1
			if first < 0 {
				first = d
			}
		}
		known *= shape[d]
	}
	if first >= 0 && known > 0 && n%known == 0 {
		shape[first] = n / known
	}
	return shape
}
