// Command recognize recognizes the digit in a picture.
//
//	POST /recognize      a PNG, dark ink on white; the answer is {"digit": 7, "probabilities": [...]}
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"

	"github.com/outboard-run/outboard/examples/digits/picture"
	"github.com/outboard-run/outboard/guest/go/nn"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() { web.Handle(http.HandlerFunc(recognize)) }

func main() {}

// Bounds of a picture, in bytes and in pixels of a side.
const (
	maxBytes = 1 << 20
	maxSide  = 1024
)

type answer struct {
	Digit         int       `json:"digit"`
	Probabilities []float32 `json:"probabilities"`
}

func recognize(w http.ResponseWriter, r *http.Request) {
	values, err := prepare(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	probabilities, err := infer(values)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	a := answer{Probabilities: probabilities}
	for digit, p := range probabilities {
		if p > probabilities[a.Digit] {
			a.Digit = digit
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // a response does not fail
}

// prepare reads a PNG and returns the input of the model.
func prepare(body io.Reader) ([]float32, error) {
	content, err := io.ReadAll(io.LimitReader(body, maxBytes))
	if err != nil {
		return nil, err
	}
	config, err := png.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("want a PNG: %w", err)
	}
	if config.Width > maxSide || config.Height > maxSide {
		return nil, fmt.Errorf("a picture of %d x %d: want at most %d x %d", config.Width, config.Height, maxSide, maxSide)
	}
	p, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("want a PNG: %w", err)
	}
	values, ok := picture.Prepare(p)
	if !ok {
		return nil, errors.New("the picture is empty: draw dark on white")
	}
	return values, nil
}

// infer returns the probabilities of the ten digits.
func infer(values []float32) ([]float32, error) {
	model, err := nn.Load("digits")
	if err != nil {
		return nil, err
	}
	output, err := model.Infer(10*4, nn.Floats(values, 1, picture.Pixels))
	if err != nil {
		return nil, err
	}
	return nn.ParseFloats(output), nil
}
