package process

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// sglang is SGLang's native interface, /generate, with /tokenize and /detokenize, as of its version
// 0.5.23. In older versions /tokenize accepts no conversations.
type sglang struct{}

func (sglang) describe(ctx context.Context, m *textModel) (engine.Info, error) {
	info, err := vllm{}.describe(ctx, m) // both list their model in the same way
	info.Platform = "sglang"
	return info, err
}

func (sglang) tokenize(ctx context.Context, m *textModel, text string, _ bool) ([]int32, error) {
	return tokensOf(ctx, m, map[string]any{"model": m.name, "prompt": text, "add_special_tokens": true})
}

func (s sglang) render(ctx context.Context, m *textModel, c engine.Conversation) (string, error) {
	body := conversation(c)
	body["model"] = m.name
	if c.Prompt {
		delete(body, "add_generation_prompt") // the default, which works with all kinds of templates
	}
	return renderTokens(ctx, m, s, body, func(tokens []int32) (string, error) {
		var reply struct {
			Text string `json:"text"`
		}
		err := m.call(ctx, "/detokenize", map[string]any{"model": m.name, "tokens": tokens, "skip_special_tokens": false}, &reply)
		return reply.Text, err
	})
}

func (sglang) request(_ *textModel, g *engine.Generation) (path string, body map[string]any) {
	s := &g.Sampling
	sampling := map[string]any{
		"max_new_tokens": g.MaxTokens, "temperature": s.Temperature, "top_k": -1, "top_p": orOne(s.TopP), "min_p": s.MinP, "sampling_seed": int64(s.Seed >> 1),
		"repetition_penalty": orOne(s.RepeatPenalty), "frequency_penalty": s.FrequencyPenalty, "presence_penalty": s.PresencePenalty,
	}
	if s.TopK > 0 {
		sampling["top_k"] = s.TopK
	}
	if len(g.Stop) > 0 {
		sampling["stop"] = g.Stop
	}
	if g.IgnoreEnd {
		sampling["ignore_eos"] = true
	}
	if g.Grammar != "" {
		sampling["ebnf"] = g.Grammar
	}
	if len(s.Bias) > 0 {
		sampling["logit_bias"] = biasesByName(s.Bias)
	}
	body = map[string]any{"input_ids": g.Prompt, "stream": true, "sampling_params": sampling}
	if g.CacheScope != "" {
		body["cache_salt"] = g.CacheScope
	}
	if g.Priority != 0 {
		body["priority"] = g.Priority
	}
	if g.LogProbs >= 0 {
		body["return_logprob"], body["top_logprobs_num"], body["return_text_in_logprobs"] = true, g.LogProbs, true
	}
	return "/generate", body
}

// biasesByName returns biases as JSON has them, by the decimal numbers of tokens.
func biasesByName(biases map[int32]float32) map[string]float32 {
	named := map[string]float32{}
	for id, b := range biases {
		named[strconv.Itoa(int(id))] = b
	}
	return named
}

// An sglangEvent is an event of a stream. Output and Text are those of all tokens so far, unless the
// server was started with --incremental-streaming-output.
type sglangEvent struct {
	eventError
	Text   string  `json:"text"`
	Output []int32 `json:"output_ids"`
	Meta   struct {
		Finish *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"finish_reason"`
		Generated int               `json:"completion_tokens"`
		Cached    int               `json:"cached_tokens"`
		LogProbs  []sglangLogProb   `json:"output_token_logprobs"`
		Top       [][]sglangLogProb `json:"output_top_logprobs"`
	} `json:"meta_info"`
}

// An sglangLogProb is a token with its log-probability, an array [LOGPROB, TOKEN, TEXT].
type sglangLogProb engine.Candidate

// UnmarshalJSON implements json.Unmarshaler.
func (p *sglangLogProb) UnmarshalJSON(b []byte) error {
	var text *string
	list := []any{&p.LogProb, &p.ID, &text}
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if text != nil {
		p.Text = *text
	}
	return nil
}

func (sglang) event(_ *textModel, a *answer, data []byte) ([]engine.Token, error) {
	var e sglangEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "model server", "an event of its stream: %w", err)
	}
	if err := e.err(); err != nil {
		return nil, err
	}
	if e.Meta.Finish != nil && e.Meta.Finish.Type == "abort" {
		return nil, outboard.Errorf(outboard.Unreachable, "model server", "it has ended the generation: %.1000s", e.Meta.Finish.Message)
	}
	text, err := e.dropReceived(a)
	if err != nil {
		return nil, err
	}
	a.usage.CachedTokens = e.Meta.Cached
	tokens := joinTokens(e.Output, text)
	for i := range min(len(tokens), len(e.Meta.LogProbs)) {
		tokens[i].LogProb = e.Meta.LogProbs[i].LogProb
		if i < len(e.Meta.Top) {
			for _, c := range e.Meta.Top[i] {
				tokens[i].Top = append(tokens[i].Top, engine.Candidate(c))
			}
		}
	}
	if e.Meta.Finish == nil {
		return tokens, nil
	}
	return endTokens(tokens, text, finish(e.Meta.Finish.Type == "length")), nil
}

// dropReceived removes the tokens, and returns the text without the part, that earlier events had.
func (e *sglangEvent) dropReceived(a *answer) (text string, err error) {
	before := a.received
	added := e.Meta.Generated - before
	if added < 0 || added > len(e.Output) {
		return "", outboard.Errorf(outboard.Protocol, "model server", "an event of its stream has %d tokens after %d, and counts %d", len(e.Output), before, e.Meta.Generated)
	}
	a.received = e.Meta.Generated
	repeated := before > 0 && len(e.Output) == e.Meta.Generated
	e.Output = e.Output[len(e.Output)-added:]
	if len(e.Meta.LogProbs) > added {
		e.Meta.LogProbs = e.Meta.LogProbs[len(e.Meta.LogProbs)-added:]
	}
	if len(e.Meta.Top) > added {
		e.Meta.Top = e.Meta.Top[len(e.Meta.Top)-added:]
	}
	if !repeated {
		a.text += e.Text
		return e.Text, nil
	}
	text, ok := strings.CutPrefix(e.Text, a.text)
	if !ok && e.Meta.Finish == nil {
		return "", outboard.Errorf(outboard.Protocol, "model server", "an event of its stream changes the text of earlier ones")
	}
	if !ok {
		return "", nil // the server has removed a stop text, of which a part was sent
	}
	a.text = e.Text
	return text, nil
}
