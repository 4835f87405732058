//go:build engines

// Package engines requires the Go modules whose only use is a shared library in them. `make
// build` copies the libraries; no program imports this package.
package engines

import _ "github.com/k2-fsa/sherpa-onnx-go-linux" // ONNX Runtime, in lib/
