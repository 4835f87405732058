package main

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Weights of another program make the same network, and those of another shape are refused.
func TestWeightsOfAnotherProgram(t *testing.T) {
	n, _ := train(10, 1)
	var file []byte
	for _, part := range [][]float32{n.first.weights, n.first.bias, n.second.weights, n.second.bias} {
		var err error
		if file, err = binary.Append(file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	again, err := decodeWeights(file)
	if err != nil || !bytes.Equal(n.graph().Encode(), again.graph().Encode()) {
		t.Errorf("another network (%v)", err)
	}
	if _, err := decodeWeights(file[1:]); err == nil {
		t.Error("a file that is cut short was read")
	}
}

// A short training recognizes most digits, and gives the same file every time.
func TestTrain(t *testing.T) {
	n, right := train(1000, 2)
	if right < tests*8/10 {
		t.Errorf("%d of %d are recognized", right, tests)
	}
	again, _ := train(1000, 2)
	if !bytes.Equal(n.graph().Encode(), again.graph().Encode()) {
		t.Error("the same training gave two files")
	}
}
