package process

import (
	"context"
	"encoding/json"

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

func (vllm) tokenize(ctx context.Context, m *textModel, text string, _ bool) ([]int32, error) {
	return tokensOf(ctx, m, map[string]any{"model": m.name, "prompt": text, "add_special_tokens": true})
}

// tokensOf requests the tokens of a text or a conversation.
func tokensOf(ctx context.Context, m *textModel, body map[string]any) ([]int32, error) {
	var reply struct {
		Tokens []int32 `json:"tokens"`
	}
	err := m.call(ctx, "/tokenize", body, &reply)
	return reply.Tokens, err
}

func (v vllm) render(ctx context.Context, m *textModel, c engine.Conversation) (string, error) {
	body := conversation(c)
	body["model"] = m.name
	return renderTokens(ctx, m, v, body, func(tokens []int32) (string, error) {
		var reply struct {
			Prompt string `json:"prompt"`
		}
		err := m.call(ctx, "/detokenize", map[string]any{"model": m.name, "tokens": tokens}, &reply)
		return reply.Prompt, err
	})
}

// renderTokens makes the server render a conversation into tokens, and returns their text. A token that
// begins each text (BOS) is left out of the text if it would be added again when the text is tokenized.
func renderTokens(ctx context.Context, m *textModel, d dialect, body map[string]any, detokenize func([]int32) (string, error)) (string, error) {
	tokens, err := tokensOf(ctx, m, body)
	if err != nil {
		return "", err
	}
	text, err := detokenize(tokens)
	if err != nil {
		return "", err
	}
	again, err := d.tokenize(ctx, m, text, true)
	if err != nil || len(tokens) == 0 || len(again) != len(tokens)+1 || again[0] != tokens[0] || again[1] != tokens[0] {
		return text, err
	}
	return detokenize(tokens[1:])
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
	if g.IgnoreEnd {
		body["ignore_eos"] = true
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
		body["logit_bias"] = biasesByName(s.Bias)
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
