package process

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// vllm is vLLM's OpenAI interface with its extensions: token identifiers, /tokenize and
// /detokenize, structured_outputs.
type vllm struct{}

func (vllm) describe(ctx context.Context, m *textModel) (engine.Info, error) {
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := m.get(ctx, "/v1/models", &models); err != nil {
		return engine.Info{}, err
	}
	if len(models.Data) == 0 {
		return engine.Info{}, outboard.Errorf(outboard.Protocol, "model server", "it has no model")
	}
	m.name = models.Data[0].ID
	return engine.Info{Platform: "vllm", Context: models.Data[0].Context}, nil
}

func (v vllm) tokenize(ctx context.Context, m *textModel, text string, _ bool) ([]int32, error) {
	return v.tokens(ctx, m, map[string]any{"model": m.name, "prompt": text, "add_special_tokens": true})
}

func (vllm) tokens(ctx context.Context, m *textModel, body map[string]any) ([]int32, error) {
	var reply struct {
		Tokens []int32 `json:"tokens"`
	}
	err := m.call(ctx, "/tokenize", body, &reply)
	return reply.Tokens, err
}

// render makes the server render the conversation into tokens and returns their text.
func (v vllm) render(ctx context.Context, m *textModel, c engine.Conversation) (string, error) {
	body := conversation(c)
	body["model"] = m.name
	tokens, err := v.tokens(ctx, m, body)
	if err != nil {
		return "", err
	}
	var reply struct {
		Prompt string `json:"prompt"`
	}
	err = m.call(ctx, "/detokenize", map[string]any{"model": m.name, "tokens": tokens}, &reply)
	return reply.Prompt, err
}

func (vllm) request(m *textModel, g *engine.Generation) (path string, body map[string]any) {
	s := &g.Sampling
	body = map[string]any{
		"model": m.name, "prompt": g.Prompt, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"max_tokens": g.MaxTokens, "return_token_ids": true, "priority": -g.Priority,
		"temperature": s.Temperature, "top_k": s.TopK, "top_p": orOne(s.TopP), "min_p": s.MinP, "seed": int64(s.Seed >> 1),
		"repetition_penalty": orOne(s.RepeatPenalty), "frequency_penalty": s.FrequencyPenalty, "presence_penalty": s.PresencePenalty,
	}
	if len(g.Stop) > 0 {
		body["stop"] = g.Stop
	}
	if g.Grammar != "" {
		body["structured_outputs"] = map[string]any{"grammar": g.Grammar}
	}
	if g.CacheScope != "" {
		body["cache_salt"] = g.CacheScope
	}
	if g.LogProbs >= 0 {
		body["logprobs"] = g.LogProbs
	}
	if len(s.Bias) > 0 {
		bias := map[string]float32{}
		for id, b := range s.Bias {
			bias[strconv.Itoa(int(id))] = b
		}
		body["logit_bias"] = bias
	}
	return "/v1/completions", body
}

func (vllm) event(_ *textModel, a *answer, data []byte) ([]engine.Token, error) {
	var part struct {
		eventError
		Choices []struct {
			Text     string  `json:"text"`
			TokenIDs []int32 `json:"token_ids"`
			Finish   string  `json:"finish_reason"`
			LogProbs struct {
				Tokens []float32            `json:"token_logprobs"`
				Top    []map[string]float32 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
		Usage *struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &part); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "model server", "an event of its stream: %w", err)
	}
	if err := part.err(); err != nil {
		return nil, err
	}
	if part.Usage != nil {
		a.usage.CachedTokens = part.Usage.Details.Cached
	}
	if len(part.Choices) == 0 {
		return nil, nil
	}
	c := &part.Choices[0]
	tokens := joinTokens(c.TokenIDs, c.Text)
	for i := range min(len(tokens), len(c.LogProbs.Tokens)) {
		tokens[i].LogProb = c.LogProbs.Tokens[i]
		if i < len(c.LogProbs.Top) {
			for text, p := range c.LogProbs.Top[i] {
				tokens[i].Top = append(tokens[i].Top, engine.Candidate{ID: noToken, Text: text, LogProb: p})
			}
		}
	}
	if c.Finish == "" {
		return tokens, nil
	}
	return endTokens(tokens, c.Text, finish(c.Finish == "length")), nil
}
