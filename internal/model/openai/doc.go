// Package openai serves text models over OpenAI's interface: chat/completions, completions,
// responses, embeddings and models, below /v1.
package openai
