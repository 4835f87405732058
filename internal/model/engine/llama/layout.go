package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outboard-run/outboard"
)

// A layout holds the offsets of fields in llama.cpp's parameter structs (llama.h), in bytes. The
// structs are passed by value and change in the middle between versions, so a version that is not
// in the table is refused: a guess would write one field into another.
type layout struct {
	modelSize, contextSize int

	gpuLayers, progress, progressData, vocabularyOnly, checkTensors int

	cells, batch, microBatch, sequences, outputs, threads, batchThreads, pooling int
	keyType, valueType, embeddings, fullWindow, unified                          int
}

// layouts are the layouts by the version that llama_version returns.
//
//nolint:gochecknoglobals // a table
var layouts = map[string]layout{"0.5.0": layout050, "0.5.0-dev": layout050}

//nolint:gochecknoglobals // a table
var layout050 = layout{
	modelSize: 80, contextSize: 160,
	gpuLayers: 16, progress: 48, progressData: 56, vocabularyOnly: 72, checkTensors: 73,
	cells: 0, batch: 4, microBatch: 8, sequences: 12, outputs: 20, threads: 28, batchThreads: 32, pooling: 44,
	keyType: 104, valueType: 108, embeddings: 128, fullWindow: 132, unified: 133,
}

// params is a parameter struct.
type params []byte

func (p params) setInt(at, value int) { binary.LittleEndian.PutUint32(p[at:], uint32(int32(value))) }
func (p params) int(at int) int       { return int(int32(binary.LittleEndian.Uint32(p[at:]))) }
func (p params) setBool(at int, v bool) {
	p[at] = 0
	if v {
		p[at] = 1
	}
}

func (p params) setPointer(at int, value uintptr) {
	binary.LittleEndian.PutUint64(p[at:], uint64(value))
}

// words returns the struct as machine words, as it is passed on the stack.
func (p params) words() []uintptr {
	out := make([]uintptr, len(p)/8)
	for i := range out {
		out[i] = uintptr(binary.LittleEndian.Uint64(p[8*i:]))
	}
	return out
}

// maxParams is larger than any parameter struct.
const maxParams = 1024

// defaults calls a function that returns a struct of defaults, with the struct's memory filled
// beforehand in two ways: bytes that neither call changed lie beyond its end.
func defaults(function func(to []byte)) params {
	a, b := bytes.Repeat([]byte{0xaa}, maxParams), bytes.Repeat([]byte{0x55}, maxParams)
	function(a)
	function(b)
	size := 0
	for i := range a {
		if a[i] != 0xaa || b[i] != 0x55 {
			size = i + 1
		}
	}
	// Padding within the struct may be left unchanged: it must be the same in both.
	for i := range size {
		if a[i] == 0xaa && b[i] == 0x55 {
			a[i] = 0
		}
	}
	rounded := (size + 7) / 8 * 8
	clear(a[size:rounded])
	return a[:rounded]
}

// checkLayout returns the layout of a version after comparing it with the library's own
// defaults.
func checkLayout(version string, model, context params) (layout, error) {
	l, known := layouts[version]
	if !known {
		return l, outboard.Errorf(outboard.Invalid, "llama.cpp",
			"version %q of this library is not known: its structs have %d and %d bytes; version 0.5.0 is known", version, len(model), len(context))
	}
	if len(model) != l.modelSize || len(context) != l.contextSize {
		return l, outboard.Errorf(outboard.Invalid, "llama.cpp",
			"the library says that it is version %s, but its structs have %d and %d bytes instead of %d and %d", version, len(model), len(context), l.modelSize, l.contextSize)
	}
	const halfPrecision = 1
	for _, f := range []struct {
		name      string
		got, want int
	}{
		{"n_ctx", context.int(l.cells), 512},
		{"n_seq_max", context.int(l.sequences), 1},
		{"type_k", context.int(l.keyType), halfPrecision},
		{"type_v", context.int(l.valueType), halfPrecision},
	} {
		if f.got != f.want {
			return l, fmt.Errorf("the library says that it is llama.cpp %s, but its default of %s is %d instead of %d", version, f.name, f.got, f.want)
		}
	}
	return l, nil
}
