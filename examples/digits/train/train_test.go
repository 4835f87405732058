package main

import (
	"bytes"
	"testing"
)

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
