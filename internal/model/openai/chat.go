package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	job, err := s.prepareChat(r.Context(), &q)
	if err != nil {
		return err
	}
	defer job.release()
	if q.Stream {
		return s.streamChat(w, r, job, &q)
	}
	answers, err := job.collect(r.Context())
	if err != nil {
		return err
	}
	choices := []map[string]any{}
	for i, a := range answers {
		message := map[string]any{"role": "assistant", "content": a.content, "refusal": nil, "annotations": []any{}}
		if len(a.calls) > 0 {
			message["tool_calls"] = encodeCalls(a.calls, 0, false)
			if a.content == "" {
				message["content"] = nil
			}
		}
		choices = append(choices, map[string]any{"index": i, "message": message, "logprobs": chatLogProbs(a.tokens, job), "finish_reason": a.finish})
	}
	completion := map[string]any{
		"id": job.id, "object": "chat.completion", "created": job.created, "model": q.Model, "choices": choices, "usage": job.usage(answers),
	}
	if job.tier != "" {
		completion["service_tier"] = job.tier
	}
	writeJSON(w, http.StatusOK, completion)
	return nil
}

// prepareChat checks a request and renders its prompt.
func (s *Server) prepareChat(ctx context.Context, q *chatRequest) (*job, error) {
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	tier, err := q.tier()
	if err := cmp.Or(err, q.checkFixed()); err != nil {
		return nil, err
	}
	g, err := q.generation()
	if err != nil {
		return nil, err
	}
	if !q.LogProbs && q.TopLogProbs != 0 {
		return nil, invalid("top_logprobs", "top_logprobs is only allowed when logprobs is true")
	}
	if q.LogProbs {
		if q.TopLogProbs < 0 || q.TopLogProbs > maxTop {
			return nil, invalid("top_logprobs", "top_logprobs must be from 0 to 20")
		}
		g.LogProbs = q.TopLogProbs
	}
	messages, err := q.messages()
	if err != nil {
		return nil, err
	}
	tools, encoded, err := q.tools()
	if err != nil {
		return nil, err
	}
	if tools, err = q.choose(tools, &g); err != nil {
		return nil, err
	}
	m, release, err := s.open(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	if len(tools) == 0 && !text.ReadsTools(m.Info().ChatTemplate) {
		encoded = nil // with tool_choice none, the tools are context for templates that have a place for them
	}
	if g.Prompt, err = q.prompt(ctx, m, &g, messages, encoded); err != nil {
		release()
		return nil, err
	}
	j := newJob("chatcmpl-", m, release, &q.options, []engine.Generation{g})
	j.tier = tier
	j.single = q.ParallelToolCalls != nil && !*q.ParallelToolCalls
	for _, t := range tools {
		if j.tools == nil {
			j.tools = map[string]bool{}
		}
		j.tools[t.Name] = true
	}
	return j, nil
}

// prompt returns the tokens of the conversation, by the template of the model.
func (q *chatRequest) prompt(ctx context.Context, m text.Model, g *engine.Generation, messages []text.Message, tools json.RawMessage) ([]int32, error) {
	info := m.Info()
	if err := checkBias(g, info.Vocabulary); err != nil {
		return nil, err
	}
	if len(tools) > 0 && g.Grammar == "" && !text.ReadsTools(info.ChatTemplate) {
		return nil, invalid("tools", "the model's chat template has no place for tools: tool_choice can still require a call of one")
	}
	variables, err := text.WithEffort(info.ChatTemplate, q.TemplateVariables, q.ReasoningEffort)
	if err != nil {
		return nil, invalid("reasoning_effort", "reasoning_effort: "+err.Error())
	}
	return text.Prompt(ctx, m, messages, tools, variables)
}

// streamChat sends the choices as server-sent events while they are generated.
func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, j *job, q *chatRequest) error {
	out := newEvents(w)
	if err := j.sendChunks(r.Context(), q, out.send); err != nil {
		return out.fail(err)
	}
	return out.done()
}

// sendChunks passes the choices to send while they are generated, in the form
// chat.completion.chunk.
func (j *job) sendChunks(ctx context.Context, q *chatRequest, sendChunk func(any) error) error {
	event := newChunk[chatChoice](j, "chat.completion.chunk", q.Model, q.includeUsage())
	event.ServiceTier = j.tier
	send := func(c chatChoice) error {
		next := event
		next.Choices = []chatChoice{c}
		if q.continuousUsage() {
			next.Usage = j.usageSoFar()
		}
		return sendChunk(&next)
	}
	begin := func(i int) error {
		return send(chatChoice{Index: i, Delta: chatDelta{Role: "assistant", Content: new(string)}})
	}
	answers, err := j.run(ctx, begin, func(i int, a *answer, p piece) error {
		if p.content != "" || p.token != nil && j.logprobs() {
			var probs any
			if p.token != nil {
				probs = chatLogProbs([]engine.Token{*p.token}, j)
			}
			if err := send(chatChoice{Index: i, Delta: chatDelta{Content: &p.content}, LogProbs: probs}); err != nil {
				return err
			}
		}
		if len(p.calls) > 0 {
			return send(chatChoice{Index: i, Delta: chatDelta{Calls: encodeCalls(p.calls, len(a.calls)-len(p.calls), true)}})
		}
		if p.finish != "" {
			return send(chatChoice{Index: i, Finish: &p.finish})
		}
		return nil
	})
	if err != nil || !q.includeUsage() {
		return err
	}
	event.Usage = j.usage(answers)
	return sendChunk(&event)
}

// encodeCalls returns calls in OpenAI's form; the first has the given index.
func encodeCalls(calls []text.Call, index int, streamed bool) []map[string]any {
	var list []map[string]any
	for i, c := range calls {
		call := map[string]any{"id": identifier("call_"), "type": "function", "function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)}}
		if streamed {
			call["index"] = index + i
		}
		list = append(list, call)
	}
	return list
}

// chatLogProbs returns the field logprobs of a choice, nil if the request does not ask for it.
func chatLogProbs(tokens []engine.Token, j *job) any {
	if !j.logprobs() {
		return nil
	}
	type tokenProb struct {
		text.TokenProb
		Top []text.TokenProb `json:"top_logprobs"`
	}
	list := []tokenProb{}
	for _, t := range tokens {
		own, top := text.Probs(t)
		list = append(list, tokenProb{own, top})
	}
	return map[string]any{"content": list, "refusal": nil}
}

func now() int64 { return time.Now().Unix() }
