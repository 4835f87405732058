// The libraries of engines that are distributed as Go modules. This is a separate module, so that
// programs that import Outboard's packages don't depend on them. No Go file imports them (their own
// files need cgo): `go mod tidy` would drop the requirements and must not be used here.
module github.com/outboard-run/outboard/packaging/engines

go 1.26.0

require github.com/k2-fsa/sherpa-onnx-go-linux v1.13.8
