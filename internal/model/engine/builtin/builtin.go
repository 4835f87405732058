// Package builtin lists the engines that are built into this program.
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
type Engines struct {
	onnx  onnx.Engine
	llama llama.Engine
}

// List returns the engines.
func (e *Engines) List() []engine.Engine { return []engine.Engine{&e.onnx, &e.llama} }

// SetLibrary sets the path of a library of an engine: a file that the node passed.
func (e *Engines) SetLibrary(engine, name, path string) {
	switch engine {
	case e.onnx.Name():
		e.onnx.Library = path
	case e.llama.Name():
		if e.llama.Libraries == nil {
			e.llama.Libraries = map[string]string{}
		}
		e.llama.Libraries[name] = path
	}
}

// Libraries returns the embedded libraries of an engine, which the node unpacks once and passes to
// all its workers; none for an engine that needs none.
func Libraries(name string) ([]*os.File, error) {
	switch name {
	case "onnx":
		f, err := onnx.Embedded()
		if err != nil {
			return nil, err
		}
		return []*os.File{f}, nil
	case "llama":
		return llama.Embedded()
	}
	return nil, nil
}

// For returns the name of the engine for a file, by the file's extension.
func For(file string) (string, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".onnx":
		return "onnx", nil
	case ".gguf":
		return "llama", nil
	}
	return "", outboard.Errorf(outboard.Invalid, "", "%s is neither an .onnx nor a .gguf file: name the engine with `engine:` in the model's configuration", filepath.Base(file))
}
