package openai

import (
	"context"
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
		if a.thoughts != "" {
			message["reasoning_content"] = a.thoughts
		}
		if len(a.calls) > 0 {
			message["tool_calls"] = encodeCalls(a.calls, 0, false)
			if a.content == "" {
				message["content"] = nil
			}
		}
		choices = append(choices, map[string]any{"index": i, "message": message, "logprobs": chatLogProbs(a.tokens, job), "finish_reason": a.finish})
	}
	completion := map[string]any{
		"id": job.id, "object": "chat.completion", "created": job.created, "model": q.Model, "choices": choices, "usage": job.counts(answers).completion(),
	}
	if job.tier != "" {
		completion["service_tier"] = job.tier
	}
	writeJSON(w, http.StatusOK, completion)
	return nil
}

// prepareChat checks a request and renders its prompt.
func (s *Server) prepareChat(ctx context.Context, q *chatRequest) (*job, error) {
	c, err := q.chat()
	if err != nil {
		return nil, err
	}
	return s.start(ctx, "chatcmpl-", c)
}

// chat returns the conversation of the request.
func (q *chatRequest) chat() (*chat, error) {
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	c := &chat{model: q.Model, choices: q.count(), variables: q.TemplateVariables, effort: q.ReasoningEffort, effortMember: "reasoning_effort"}
	c.single = q.ParallelToolCalls != nil && !*q.ParallelToolCalls
	var err error
	if c.tier, err = tierOf(q.ServiceTier); err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	if c.generation, err = q.generation(); err != nil {
		return nil, err
	}
	if !q.LogProbs && q.TopLogProbs != 0 {
		return nil, invalid("top_logprobs", "top_logprobs is only allowed when logprobs is true")
	}
	if q.LogProbs {
		c.generation.LogProbs = q.TopLogProbs
	}
	if err := checkTop(q.TopLogProbs); err != nil {
		return nil, err
	}
	if c.messages, err = q.messages(); err != nil {
		return nil, err
	}
	choice, err := q.choice()
	if err != nil {
		return nil, err
	}
	return c, c.setTools(q.Tools, choice)
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
		if p.Thoughts != "" || p.Content != "" || p.token != nil && j.logprobs() {
			var probs any
			if p.token != nil {
				probs = chatLogProbs([]engine.Token{*p.token}, j)
			}
			if err := send(chatChoice{Index: i, Delta: textDelta(&p.Piece), LogProbs: probs}); err != nil {
				return err
			}
		}
		if len(p.Calls) > 0 {
			return send(chatChoice{Index: i, Delta: chatDelta{Calls: encodeCalls(p.Calls, len(a.calls)-len(p.Calls), true)}})
		}
		if p.finish != "" {
			return send(chatChoice{Index: i, Finish: &p.finish})
		}
		return nil
	})
	if err != nil || !q.includeUsage() {
		return err
	}
	event.Usage = j.counts(answers).completion()
	return sendChunk(&event)
}

// textDelta returns the thoughts and the text of the answer that a token adds.
func textDelta(p *text.Piece) chatDelta {
	d := chatDelta{Reasoning: p.Thoughts}
	if p.Content != "" || p.Thoughts == "" {
		d.Content = &p.Content
	}
	return d
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
	list := []tokenProb{}
	for i := range tokens {
		list = append(list, newTokenProb(&tokens[i]))
	}
	return map[string]any{"content": list, "refusal": nil}
}

// A tokenProb is a token with its probability, and with those of the likeliest tokens in its place.
type tokenProb struct {
	text.TokenProb
	Top []text.TokenProb `json:"top_logprobs"`
}

func newTokenProb(t *engine.Token) tokenProb {
	own, top := text.Probs(*t)
	return tokenProb{own, top}
}

func now() int64 { return time.Now().Unix() }
