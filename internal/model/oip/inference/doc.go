// Package inference contains the messages of the Open Inference Protocol v2 over gRPC.
package inference

//go:generate ./generate.sh
