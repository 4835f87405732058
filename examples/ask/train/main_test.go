package main

import (
	"bytes"
	"testing"
)

// The model is a GGUF file, and the same one every time.
func TestTrain(t *testing.T) {
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := train(w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.HasPrefix(first.Bytes(), []byte("GGUF")) || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%d and %d bytes, which begin with %q", first.Len(), second.Len(), first.Next(4))
	}
}
