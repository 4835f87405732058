// Package inference contains the messages of the Open Inference Protocol v2 over gRPC, and converts the
// tensors in them.
package inference

//go:generate ./generate.sh
