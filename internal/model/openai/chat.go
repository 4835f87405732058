package openai

import (
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
		message := map[string]any{"role": "assistant", "content": a.content, "refusal": nil}
		if len(a.calls) > 0 {
			message["tool_calls"] = encodeCalls(a.calls, 0, false)
			if a.content == "" {
				message["content"] = nil
			}
		}
		choices = append(choices, map[string]any{"index": i, "message": message, "logprobs": chatLogProbs(a.tokens, job), "finish_reason": a.finish})
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"id": job.id, "object": "chat.completion", "created": job.created, "model": q.Model, "choices": choices, "usage": job.usage(answers), "system_fingerprint": nil,
	})
	return nil
}

// prepareChat checks a request and renders its prompt.
func (s *Server) prepareChat(ctx context.Context, q *chatRequest) (*job, error) {
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	g, err := q.generation()
	if err != nil {
		return nil, err
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
	if g.Prompt, err = text.Prompt(ctx, m, messages, encoded, q.TemplateVariables); err != nil {
		release()
		return nil, err
	}
	j := newJob("chatcmpl-", m, release, &q.options, []engine.Generation{g})
	for _, t := range tools {
		if j.tools == nil {
			j.tools = map[string]bool{}
		}
		j.tools[t.Name] = true
	}
	return j, nil
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
	event := newChunk[chatChoice](j, "chat.completion.chunk", q.Model, q.StreamOptions.IncludeUsage)
	event.Fingerprint = null
	send := func(c chatChoice) error {
		next := event
		next.Choices = []chatChoice{c}
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
	if err != nil || !q.StreamOptions.IncludeUsage {
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

type tokenProb struct {
	Token   string      `json:"token"`
	LogProb float32     `json:"logprob"`
	Bytes   []int       `json:"bytes"`
	Top     []tokenProb `json:"top_logprobs,omitempty"`
}

func newTokenProb(token string, p float32) tokenProb {
	t := tokenProb{Token: token, LogProb: p, Bytes: []int{}}
	for _, b := range []byte(token) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}

// chatLogProbs returns the field logprobs of a choice, nil if the request does not ask for it.
func chatLogProbs(tokens []engine.Token, j *job) any {
	if !j.logprobs() {
		return nil
	}
	list := []json.RawMessage{}
	for _, t := range tokens {
		p := newTokenProb(tokenText(t), t.LogProb)
		top := []tokenProb{}
		for _, c := range t.Top {
			top = append(top, newTokenProb(c.Text, c.LogProb))
		}
		encoded, err := json.Marshal(struct {
			tokenProb
			Top []tokenProb `json:"top_logprobs"`
		}{p, top})
		if err != nil {
			continue // a probability of 0 has no logarithm in JSON
		}
		list = append(list, encoded)
	}
	return map[string]any{"content": list, "refusal": nil}
}

// tokenText returns the text of a token, even if it added nothing to the answer's text.
func tokenText(t engine.Token) string {
	for _, c := range t.Top {
		if c.ID == t.ID {
			return c.Text
		}
	}
	return t.Text
}

func now() int64 { return time.Now().Unix() }
