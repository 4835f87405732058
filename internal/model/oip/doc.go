// Package oip serves the Open Inference Protocol v2 for tensors, over REST and gRPC, with the
// extensions of Triton that its clients use: binary tensors, the model repository, statistics,
// configuration, system shared memory, and generation of text.
package oip
