package nn

import (
	"bytes"
	"runtime"
	"testing"
)

// An output is the caller's own, and a call allocates for the output rather than for its bound.
func TestInferReturnsOwnOutputs(t *testing.T) {
	Fake = func(_ string, inputs []Tensor) ([][]byte, error) { return [][]byte{inputs[0].Data}, nil }
	t.Cleanup(func() { Fake = nil })
	m, err := Load("echo")
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	infer := func(data ...byte) []byte {
		output, err := m.Infer(size, Tensor{Dimensions: []uint32{uint32(len(data))}, Type: Uint8, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	first, second := infer(1, 2, 3), infer(4, 5)
	if !bytes.Equal(first, []byte{1, 2, 3}) || !bytes.Equal(second, []byte{4, 5}) {
		t.Errorf("outputs %v and %v", first, second)
	}
	const calls = 16
	before := allocated()
	for range calls {
		infer(6)
	}
	if each := (allocated() - before) / calls; each > size/16 {
		t.Errorf("a call allocates %d bytes for an output of 1", each)
	}
}

// allocated returns the bytes that this process has allocated so far.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// An output beyond the bound is refused, whatever larger outputs the model had before.
func TestInferKeepsItsBound(t *testing.T) {
	Fake = func(_ string, inputs []Tensor) ([][]byte, error) { return [][]byte{inputs[0].Data}, nil }
	t.Cleanup(func() { Fake = nil })
	m, err := Load("echo")
	if err != nil {
		t.Fatal(err)
	}
	input := Tensor{Dimensions: []uint32{4}, Type: Uint8, Data: []byte{1, 2, 3, 4}}
	if _, err := m.Infer(4, input); err != nil {
		t.Fatal(err)
	}
	if output, err := m.Infer(3, input); err == nil {
		t.Errorf("an output of 4 bytes for a bound of 3: %v", output)
	}
}
