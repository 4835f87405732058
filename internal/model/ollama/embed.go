package ollama

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// maxInputs bounds the texts of one request.
const maxInputs = 256

func (s *Server) embed(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Truncate   *bool           `json:"truncate"`
		Dimensions int             `json:"dimensions"`
		Keep       *keepAlive      `json:"keep_alive"`
		Options    runOptions      `json:"options"`
	}
	if err := decode(r, &q); err != nil {
		return err
	}
	var inputs []string
	var one string
	if json.Unmarshal(q.Input, &one) == nil {
		inputs = []string{one}
	} else if err := json.Unmarshal(q.Input, &inputs); err != nil {
		return invalid("input must be a text or an array of texts")
	}
	if len(inputs) > maxInputs {
		return invalid("input has %d texts: %d are accepted", len(inputs), maxInputs)
	}
	begin := time.Now()
	m, release, err := s.open(r, q.Model)
	if err != nil {
		return err
	}
	defer s.keep(r, q.Model, q.Keep)
	defer release()
	load := time.Since(begin)
	if q.Dimensions != 0 && q.Dimensions != m.Info().Embedding {
		return invalid("dimensions: the embeddings of this model have %d", m.Info().Embedding)
	}
	all, count := [][]float32{}, 0
	for i, input := range inputs {
		v, n, err := embedText(r, m, input, &q.Options, q.Truncate == nil || *q.Truncate)
		if err != nil {
			return outboard.Errorf(outboard.KindOf(err), "", "input %d: %w", i, err)
		}
		all, count = append(all, text.Normalize(v)), count+n
	}
	writeJSON(w, http.StatusOK, map[string]any{"model": q.Model, "embeddings": all, "total_duration": time.Since(begin), "load_duration": load, "prompt_eval_count": count})
	return nil
}

// embedText returns the embedding of a text, and its number of tokens. If truncate is set, it cuts
// a text that exceeds the context.
func embedText(r *http.Request, m text.Model, input string, o *runOptions, truncate bool) ([]float32, int, error) {
	tokens, err := m.Tokenize(r.Context(), engine.Text{Content: input, Bounded: !truncate})
	if err != nil {
		return nil, 0, err
	}
	most := m.Info().Context
	if n := o.NumContext; n > 0 {
		most = min(most, n)
	}
	switch {
	case len(tokens) <= most:
	case truncate:
		tokens = tokens[:most]
	case most == o.NumContext:
		return nil, 0, invalid("it has %d tokens, and options.num_ctx is %d", len(tokens), most)
	}
	v, err := m.Embed(r.Context(), tokens)
	return v, len(tokens), err
}

// embedOne implements the older call, whose result is not normalized.
func (s *Server) embedOne(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Model   string     `json:"model"`
		Prompt  string     `json:"prompt"`
		Keep    *keepAlive `json:"keep_alive"`
		Options runOptions `json:"options"`
	}
	if err := decode(r, &q); err != nil {
		return err
	}
	m, release, err := s.open(r, q.Model)
	if err != nil {
		return err
	}
	defer s.keep(r, q.Model, q.Keep)
	defer release()
	v, _, err := embedText(r, m, q.Prompt, &q.Options, true)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"embedding": v})
	return nil
}
