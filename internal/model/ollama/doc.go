// Package ollama serves text models over Ollama's interface: chat, generate, embed, tags, show, ps
// and version, below /api.
package ollama
