package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// Value describes a result that is stored outside of the log.
type Value struct {
	Size int64 `json:"size"`
	// Digest identifies its content, "sha256:HEX".
	Digest string `json:"digest"`
	// Type is its media type.
	Type string `json:"type,omitempty"`
}

// InputStep is the step name in references to a large input of the workflow.
const InputStep = ":input"

const referenceKey = "$value"

// Reference stands for a value in the workflow's data:
//
//	{"$value": {"step": "decode", "size": 1048576, "type": "image/x-raw"}}
//
// It names the step that produced the value, but neither its location nor its digest, which are
// known later or differ between nodes, while data must be deterministic.
type Reference struct {
	Step string
	Size int64
	Type string
}

func (r Reference) data() any {
	inner := map[string]any{"step": r.Step, "size": json.Number(big.NewInt(r.Size).String())}
	if r.Type != "" {
		inner["type"] = r.Type
	}
	return map[string]any{referenceKey: inner}
}

// ReferenceOf returns the reference that the data encodes. The value need not exist, since
// data may come from anywhere.
func ReferenceOf(data any) (Reference, bool) {
	outer, ok := data.(map[string]any)
	if !ok || len(outer) != 1 {
		return Reference{}, false
	}
	inner, ok := outer[referenceKey].(map[string]any)
	if !ok {
		return Reference{}, false
	}
	step, ok := inner["step"].(string)
	kind, _ := inner["type"].(string)
	return Reference{Step: step, Type: kind, Size: whole(inner["size"])}, ok
}

func whole(v any) int64 {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err == nil {
			return n
		}
	case int:
		return int64(v)
	case float64:
		return int64(v)
	}
	return 0
}

// Decode decodes one JSON value into the types that expressions use. Its numbers have 1,300 characters
// at most.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the JSON value")
	}
	if err := checkNumbers(v); err != nil {
		return nil, err
	}
	return v, nil
}

// checkNumbers returns an error if a decoded value has a number that is too long to compute with.
func checkNumbers(v any) error {
	switch v := v.(type) {
	case json.Number:
		return dsl.CheckNumber(v)
	case []any:
		for _, e := range v {
			if err := checkNumbers(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := checkNumbers(e); err != nil {
				return err
			}
		}
	}
	return nil
}
