// Package builtin lists the engines that this program has.
package builtin

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
	"github.com/outboard-run/outboard/internal/model/engine/onnx"
)

// Engines are the engines of a worker's process.
type Engines struct{ onnx onnx.Engine }

// List returns the engines.
func (e *Engines) List() []engine.Engine { return []engine.Engine{&e.onnx, llama.Engine{}} }

// SetLibrary sets the library of an engine to a file that the node passed.
func (e *Engines) SetLibrary(name, path string) {
	if name == e.onnx.Name() {
		e.onnx.Library = path
	}
}

// Library returns the embedded library of an engine, which the node passes to its workers; nil
// for an engine that needs none.
func Library(name string) (*os.File, error) {
	if name == "onnx" {
		return onnx.Embedded()
	}
	return nil, nil
}

// For returns the name of the engine for a file, by its ending.
func For(file string) (string, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".onnx":
		return "onnx", nil
	case ".gguf":
		return "llama", nil
	}
	return "", outboard.Errorf(outboard.Invalid, "", "%s is neither an .onnx nor a .gguf file: name the engine with `engine:` in the model's configuration", filepath.Base(file))
}
