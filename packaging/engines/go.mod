// The libraries of engines, which Go modules bring. It is a module of its own, so that programs
// that import Outboard's packages don't see them.
module github.com/outboard-run/outboard/packaging/engines

go 1.26.0

require github.com/k2-fsa/sherpa-onnx-go-linux v1.13.8
