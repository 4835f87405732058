package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// maxPrompts bounds the prompts of a request.
const maxPrompts = 256

// A promptList is a text, an array of texts, an array of tokens, or an array of arrays of tokens.
type promptList struct {
	texts  []string
	tokens [][]int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *promptList) UnmarshalJSON(b []byte) error {
	var err error
	switch first := firstOfList(b); first {
	case 0:
		p.texts = []string{""}
		err = json.Unmarshal(b, &p.texts[0])
	case '[':
		err = json.Unmarshal(b, (*bounded.List[[]int32])(&p.tokens))
	case '"', ']', 'n': // null is an empty text
		err = json.Unmarshal(b, (*bounded.List[string])(&p.texts))
	default:
		p.tokens = [][]int32{nil}
		err = json.Unmarshal(b, &p.tokens[0])
	}
	if err == nil || outboard.KindOf(err) == outboard.Invalid {
		return err
	}
	return &json.UnmarshalTypeError{Value: "another type"} // the decoder adds the name
}

// firstOfList returns the first byte in an array of JSON, 0 for another value.
func firstOfList(b []byte) byte {
	in, isList := bytes.CutPrefix(bytes.TrimSpace(b), []byte("["))
	if in = bytes.TrimSpace(in); !isList || len(in) == 0 {
		return 0
	}
	return in[0]
}

// tokenize returns the tokens of each text, which are split as form says.
func (p *promptList) tokenize(ctx context.Context, m text.Model, param string, form engine.Text) ([][]int32, error) {
	if n := len(p.texts) + len(p.tokens); n == 0 || n > maxPrompts {
		return nil, invalid(param, fmt.Sprintf("%s has %d texts: from 1 to %d are accepted", param, n, maxPrompts))
	}
	all := p.tokens
	for _, t := range p.texts {
		form.Content = t
		tokens, err := m.Tokenize(ctx, form)
		if err != nil {
			return nil, err
		}
		all = append(all, tokens)
	}
	for i, tokens := range all {
		if len(tokens) == 0 {
			return nil, invalid(param, fmt.Sprintf("text %d of %s is empty", i, param))
		}
	}
	return all, nil
}

// A completionRequest is the body of completions.
type completionRequest struct {
	options
	Prompt   promptList `json:"prompt"`
	Echo     bool       `json:"echo"`
	LogProbs *int       `json:"logprobs"`
	// Suffix is the text that follows the completion.
	Suffix string `json:"suffix"`
	BestOf *int   `json:"best_of"`
}

// defaultCompletion is OpenAI's default number of tokens to generate for a completion.
const defaultCompletion = 16

func (s *Server) complete(w http.ResponseWriter, r *http.Request) error {
	var q completionRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	j, err := s.prepareCompletion(r.Context(), &q)
	if err != nil {
		return err
	}
	defer j.release()
	if q.Stream {
		return s.streamCompletion(w, r, j, &q)
	}
	answers, err := j.collect(r.Context())
	if err != nil {
		return err
	}
	choices := []map[string]any{}
	for i, a := range answers {
		choices = append(choices, map[string]any{"index": i, "text": q.echo(i) + a.content, "logprobs": completionLogProbs(a.tokens, j, 0), "finish_reason": a.finish})
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": j.id, "object": "text_completion", "created": j.created, "model": q.Model, "choices": choices, "usage": j.counts(answers).completion()})
	return nil
}

// echo returns the prompt of a choice if the request asks for it.
func (q *completionRequest) echo(choice int) string {
	if !q.Echo || len(q.Prompt.texts) == 0 {
		return ""
	}
	return q.Prompt.texts[choice/q.count()]
}

func (s *Server) prepareCompletion(ctx context.Context, q *completionRequest) (*job, error) {
	switch {
	case q.Suffix != "" && len(q.Prompt.tokens) > 0:
		return nil, invalid("suffix", "suffix is supported for prompts that are texts")
	case q.Suffix != "" && q.Echo:
		return nil, invalid("suffix", "suffix is not supported beside echo")
	case q.BestOf != nil && *q.BestOf != q.count():
		return nil, invalid("best_of", "best_of is not supported beside n")
	case q.Echo && len(q.Prompt.tokens) > 0:
		return nil, invalid("echo", "echo is supported for prompts that are texts")
	case q.Echo && q.LogProbs != nil:
		return nil, invalid("echo", "echo is not supported beside logprobs: the prompt's tokens have none")
	}
	if q.MaxTokens == nil {
		q.MaxTokens = new(int)
		*q.MaxTokens = defaultCompletion
	}
	g, err := q.generation()
	if err != nil {
		return nil, err
	}
	if q.LogProbs != nil {
		if *q.LogProbs < 0 || *q.LogProbs > maxTop {
			return nil, invalid("logprobs", "logprobs must be from 0 to 20")
		}
		g.LogProbs = *q.LogProbs
	}
	m, release, err := s.open(ctx, q.Model)
	if err != nil {
		return nil, err
	}
	prompts, err := q.Prompt.tokenize(ctx, m, "prompt", engine.Text{Suffix: q.Suffix, Prompt: true, Bounded: true})
	if err = cmp.Or(err, checkBias(&g, m.Info().Vocabulary)); err != nil {
		release()
		return nil, err
	}
	var list []engine.Generation
	for _, tokens := range prompts {
		g.Prompt = tokens
		list = append(list, g)
	}
	return newJob("cmpl-", m, release, q.count(), list), nil
}

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, j *job, q *completionRequest) error {
	out := newEvents(w)
	event := newChunk[completionChoice](j, "text_completion", q.Model, q.includeUsage())
	send := func(c completionChoice) error {
		next := event
		next.Choices = []completionChoice{c}
		if q.continuousUsage() {
			next.Usage = j.usageSoFar()
		}
		return out.send(&next)
	}
	offsets := make([]int, len(j.generations))
	begin := func(i int) error {
		if echo := q.echo(i); echo != "" {
			return send(completionChoice{Index: i, Text: echo})
		}
		return nil
	}
	answers, err := j.run(r.Context(), begin, func(i int, _ *answer, p piece) error {
		switch {
		case p.finish != "":
			return send(completionChoice{Index: i, Finish: &p.finish})
		case p.Content == "" && !j.logprobs():
			return nil
		}
		probs := completionLogProbs([]engine.Token{*p.token}, j, offsets[i])
		offsets[i] += utf8.RuneCountInString(p.Content)
		return send(completionChoice{Index: i, Text: p.Content, LogProbs: probs})
	})
	if err != nil {
		return out.fail(err)
	}
	if q.includeUsage() {
		event.Usage = j.counts(answers).completion()
		if err := out.send(&event); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
	}
	return out.done()
}

// completionLogProbs returns the field logprobs of a completion's choice.
func completionLogProbs(list []engine.Token, j *job, offset int) any {
	if !j.logprobs() {
		return nil
	}
	tokens, probs, top, offsets := []string{}, []float32{}, []map[string]float32{}, []int{}
	for _, t := range list {
		tokens, probs, offsets = append(tokens, text.TokenText(t)), append(probs, text.FiniteLogProb(t.LogProb)), append(offsets, offset)
		offset += utf8.RuneCountInString(t.Text)
		best := map[string]float32{}
		for _, c := range t.Top {
			best[c.Text] = text.FiniteLogProb(c.LogProb)
		}
		top = append(top, best)
	}
	return map[string]any{"tokens": tokens, "token_logprobs": probs, "top_logprobs": top, "text_offset": offsets}
}

// An embeddingRequest is the body of embeddings.
type embeddingRequest struct {
	Model      string     `json:"model"`
	Input      promptList `json:"input"`
	Format     string     `json:"encoding_format"`
	Dimensions *int       `json:"dimensions"`
	labels
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) error {
	var q embeddingRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	if q.Format != "" && q.Format != "float" && q.Format != "base64" {
		return invalid("encoding_format", fmt.Sprintf("encoding_format is %q: float and base64 are supported", q.Format))
	}
	m, release, err := s.open(r.Context(), q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Dimensions != nil && *q.Dimensions != m.Info().Embedding {
		return invalid("dimensions", fmt.Sprintf("the embeddings of this model have %d dimensions", m.Info().Embedding))
	}
	inputs, err := q.Input.tokenize(r.Context(), m, "input", engine.Text{Bounded: true})
	if err != nil {
		return err
	}
	data, total := []map[string]any{}, 0
	for i, tokens := range inputs {
		v, err := m.Embed(r.Context(), tokens)
		if err != nil {
			return err
		}
		total += len(tokens)
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": encodeEmbedding(text.Normalize(v), q.Format)})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data, "model": q.Model, "usage": map[string]any{"prompt_tokens": total, "total_tokens": total}})
	return nil
}

func encodeEmbedding(v []float32, format string) any {
	if format != "base64" {
		return v
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
