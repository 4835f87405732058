// Package llama is the engine for GGUF models: llama.cpp's own library, called without cgo.
//
// One goroutine of a loaded model owns the library's context. It decodes in micro-batches: one
// token of each running generation, and beside them chunks of the prompts that have arrived. It
// samples in Go, from the seed, the position and the logits alone, so that another node can
// continue a generation. The attention state of computed tokens is kept as a tree of token
// sequences; a prompt with the same beginning as one of them shares its cells. State that is evicted
// from the cells is parked in other memory and copied back when a prompt begins like it. Cells are
// reserved before a generation begins, so decoding never runs out of them.
package llama
