// Package llama is the engine for GGUF models: llama.cpp's own library, called without cgo.
//
// One goroutine of a loaded model owns the library's context. It decodes in micro-batches: one
// token of each generation that runs, and beside them chunks of the prompts that have come. It
// samples in Go, from the seed, the position and the logits alone, so that a generation can go
// on elsewhere. The attention state of what was computed is kept as a tree of token sequences;
// a prompt that begins as one of them shares its cells. Cells are reserved before a generation
// begins, so decoding never runs out of them.
package llama
