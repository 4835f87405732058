package process

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A dialect is the HTTP interface of one kind of server.
type dialect interface {
	// describe requests the description of the server's model.
	describe(ctx context.Context, m *textModel) (engine.Info, error)
	tokenize(ctx context.Context, m *textModel, text string, special bool) ([]int32, error)
	render(ctx context.Context, m *textModel, c engine.Conversation) (string, error)
	// request returns the path and the body of a request for a stream.
	request(m *textModel, g *engine.Generation) (path string, body map[string]any)
	// event parses an event of the stream. errStopped reports the last event.
	event(m *textModel, a *answer, data []byte) ([]engine.Token, error)
}

//nolint:gochecknoglobals // a table
var dialects = map[string]dialect{"llama-server": llamaServer{}, "vllm": vllm{}, "sglang": sglang{}}

// conversation returns the fields of a request that describe a conversation.
func conversation(c engine.Conversation) map[string]any {
	body := map[string]any{"messages": c.Messages, "add_generation_prompt": c.Prompt}
	if len(c.Tools) > 0 {
		body["tools"] = c.Tools
	}
	if len(c.Variables) > 0 {
		body["chat_template_kwargs"] = c.Variables
	}
	return body
}

// finish returns the finish reason: length if a limit ended the text, stop otherwise.
func finish(limit bool) engine.FinishReason {
	if limit {
		return engine.FinishLength
	}
	return engine.FinishStop
}

// An eventError is an error that a server sends in a stream instead of a token.
type eventError struct {
	Error json.RawMessage `json:"error"`
}

func (e *eventError) err() error {
	if len(e.Error) == 0 || string(e.Error) == "null" {
		return nil
	}
	return outboard.Errorf(outboard.Other, "model server", "%.1000s", e.Error)
}

// llamaServer is llama.cpp's own server, by its native interface (tools/server/README.md).
type llamaServer struct{}

func (llamaServer) describe(ctx context.Context, m *textModel) (engine.Info, error) {
	var models struct {
		Data []struct {
			ID   string `json:"id"`
			Meta struct {
				Vocabulary int   `json:"n_vocab"`
				Embedding  int   `json:"n_embd"`
				Size       int64 `json:"size"`
			} `json:"meta"`
		} `json:"data"`
	}
	var props struct {
		Slots    int    `json:"total_slots"`
		Template string `json:"chat_template"`
		Settings struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := m.get(ctx, "/v1/models", &models); err != nil {
		return engine.Info{}, err
	}
	if err := m.get(ctx, "/props", &props); err != nil {
		return engine.Info{}, err
	}
	if len(models.Data) == 0 {
		return engine.Info{}, outboard.Errorf(outboard.Protocol, "model server", "it has no model")
	}
	first := models.Data[0]
	m.name = first.ID
	return engine.Info{
		Platform: "llama-server", Memory: first.Meta.Size, Context: props.Settings.Context, Vocabulary: first.Meta.Vocabulary,
		Embedding: first.Meta.Embedding, Sequences: props.Slots, ChatTemplate: props.Template,
	}, nil
}

func (llamaServer) tokenize(ctx context.Context, m *textModel, text string, special bool) ([]int32, error) {
	var reply struct {
		Tokens []int32 `json:"tokens"`
	}
	err := m.call(ctx, "/tokenize", map[string]any{"content": text, "add_special": true, "parse_special": special}, &reply)
	return reply.Tokens, err
}

func (llamaServer) render(ctx context.Context, m *textModel, c engine.Conversation) (string, error) {
	if m.info.ChatTemplate == "" {
		return "", engine.ErrNoTemplate
	}
	var reply struct {
		Prompt string `json:"prompt"`
	}
	err := m.call(ctx, "/apply-template", conversation(c), &reply)
	return reply.Prompt, err
}

func (llamaServer) request(_ *textModel, g *engine.Generation) (path string, body map[string]any) {
	s := &g.Sampling
	body = map[string]any{
		"prompt": g.Prompt, "stream": true, "n_predict": g.MaxTokens, "return_tokens": true,
		"cache_prompt": g.CacheScope == "", // llama-server has one cache for all clients
		"temperature":  s.Temperature, "top_k": s.TopK, "top_p": orOne(s.TopP), "min_p": s.MinP, "seed": uint32(s.Seed),
		"repeat_penalty": orOne(s.RepeatPenalty), "repeat_last_n": 64, "frequency_penalty": s.FrequencyPenalty, "presence_penalty": s.PresencePenalty,
	}
	if len(g.Stop) > 0 {
		body["stop"] = g.Stop
	}
	if g.IgnoreEnd {
		body["ignore_eos"] = true
	}
	if g.Grammar != "" {
		body["grammar"] = g.Grammar
	}
	if g.LogProbs >= 0 {
		body["n_probs"] = max(g.LogProbs, 1)
		body["post_sampling_probs"] = false
	}
	var bias [][2]float64
	for _, id := range slices.Sorted(maps.Keys(s.Bias)) {
		bias = append(bias, [2]float64{float64(id), float64(s.Bias[id])})
	}
	if bias != nil {
		body["logit_bias"] = bias
	}
	return "/completion", body
}

// orOne returns v, or for 0 the value 1, which means no restriction.
func orOne(v float32) float32 {
	if v == 0 {
		return 1
	}
	return v
}

// A llamaCandidate is a token with its probability.
type llamaCandidate struct {
	ID      int32            `json:"id"`
	Token   string           `json:"token"`
	LogProb float32          `json:"logprob"`
	Top     []llamaCandidate `json:"top_logprobs"`
}

func (llamaServer) event(_ *textModel, a *answer, data []byte) ([]engine.Token, error) {
	var part struct {
		eventError
		Content       string           `json:"content"`
		Tokens        []int32          `json:"tokens"`
		Stop          bool             `json:"stop"`
		StopType      string           `json:"stop_type"`
		Probabilities []llamaCandidate `json:"completion_probabilities"`
		Timings       struct {
			Cached int `json:"cache_n"`
		} `json:"timings"`
	}
	if err := json.Unmarshal(data, &part); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "model server", "an event of its stream: %w", err)
	}
	if err := part.err(); err != nil {
		return nil, err
	}
	tokens := joinTokens(part.Tokens, part.Content)
	for i := range min(len(tokens), len(part.Probabilities)) {
		p := &part.Probabilities[i]
		tokens[i].LogProb = p.LogProb
		for _, c := range p.Top {
			tokens[i].Top = append(tokens[i].Top, engine.Candidate{ID: c.ID, Text: c.Token, LogProb: c.LogProb})
		}
	}
	if !part.Stop {
		return tokens, nil
	}
	a.usage.CachedTokens = part.Timings.Cached
	return endTokens(tokens, part.Content, finish(part.StopType == "limit")), nil
}

// joinTokens returns the tokens of an event, whose text belongs to the last one.
func joinTokens(ids []int32, text string) []engine.Token {
	tokens := make([]engine.Token, len(ids))
	for i, id := range ids {
		tokens[i].ID = id
	}
	if len(tokens) > 0 {
		tokens[len(tokens)-1].Text = text
	}
	return tokens
}

// noToken is the identifier of the end of a text for which the server reported no token.
const noToken = -1

// endTokens marks the last token. If the end has no token, it adds a token without an identifier.
func endTokens(tokens []engine.Token, text string, reason engine.FinishReason) []engine.Token {
	if len(tokens) == 0 {
		tokens = []engine.Token{{ID: noToken, Text: text}}
	}
	tokens[len(tokens)-1].Last = reason
	return tokens
}
