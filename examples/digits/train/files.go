package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/outboard-run/outboard/examples/digits/picture"
)

// writePictures writes pictures as training data for other programs: for each picture a byte with
// the digit and one for each pixel, from 0 (paper) to 255 (ink).
func writePictures(count int, file string) error {
	r := source(1)
	records := make([]byte, 0, count*(1+picture.Pixels))
	for i := range count {
		in, digit := sample(i, r)
		records = append(records, byte(digit))
		for _, v := range in {
			records = append(records, byte(min(max(v, 0), 1)*255+.5))
		}
	}
	return os.WriteFile(file, records, 0o644) //nolint:gosec // pictures are no secret
}

// writeWeights writes the model with weights that another program has learned, and prints how many
// pictures it recognizes.
func writeWeights(weights, file string) error {
	data, err := os.ReadFile(weights)
	if err != nil {
		return err
	}
	n, err := decodeWeights(data)
	if err != nil {
		return fmt.Errorf("%s: %w", weights, err)
	}
	fmt.Fprintf(os.Stdout, "%d of %d new pictures are recognized\n", n.countRecognized(), tests)
	return os.WriteFile(file, n.graph().Encode(), 0o644) //nolint:gosec // a model is no secret
}

// decodeWeights returns a network from its weights, inputs x outputs, and biases, layer by layer,
// in float32, little-endian.
func decodeWeights(data []byte) (*network, error) {
	n := newNetwork(picture.Pixels, source(1))
	parts := [][]float32{n.first.weights, n.first.bias, n.second.weights, n.second.bias}
	want := 0
	for _, part := range parts {
		want += 4 * len(part)
	}
	if len(data) != want {
		return nil, fmt.Errorf("%d bytes of weights: want %d", len(data), want)
	}
	in := bytes.NewReader(data)
	for _, part := range parts {
		if err := binary.Read(in, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return n, nil
}
