package oip

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A generateRequest is a request of the protocol's extension generate. Clients of Triton send
// parameters as members of the request as well, as its backends declare them.
type generateRequest struct {
	ID, Text   string
	Parameters parameters
}

// UnmarshalJSON implements json.Unmarshaler. A parameter below "parameters" takes precedence.
func (q *generateRequest) UnmarshalJSON(text []byte) error {
	var named struct {
		ID         string     `json:"id"`
		Text       string     `json:"text_input"`
		Parameters parameters `json:"parameters"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &q.Parameters); err != nil {
		return err
	}
	q.ID, q.Text = named.ID, named.Text
	maps.Copy(q.Parameters, named.Parameters)
	return nil
}

type generateReply struct {
	ID      string `json:"id,omitempty"`
	Model   string `json:"model_name"`
	Version string `json:"model_version"`
	Text    string `json:"text_output"`
	Done    *bool  `json:"done,omitempty"`
}

// generation converts a request; unknown parameters are ignored, as Triton's backends do. Some
// parameters have another name in the interface of TensorRT-LLM's backend.
func (q *generateRequest) generation() (engine.Generation, error) {
	g := engine.Generation{LogProbs: -1}
	var err error
	number := func(set func(float64), names ...string) {
		for _, name := range names {
			v, ok, failed := parameter[float64](q.Parameters, name)
			if failed == nil && math.Abs(v) > math.MaxFloat32 {
				failed = outboard.Errorf(outboard.Invalid, "generate", "parameter %q is %v: at most %v is allowed", name, v, math.MaxFloat32)
			}
			err = cmp.Or(err, failed)
			if ok && failed == nil {
				set(v)
			}
		}
	}
	number(func(v float64) { g.MaxTokens = int(min(v, math.MaxInt32)) }, "max_tokens")
	number(func(v float64) { g.Sampling.Temperature = float32(v) }, "temperature")
	number(func(v float64) { g.Sampling.TopK = int(max(0, min(v, math.MaxInt32))) }, "top_k")
	number(func(v float64) { g.Sampling.TopP = float32(v) }, "top_p")
	number(func(v float64) { g.Sampling.RepeatPenalty = float32(v) }, "repetition_penalty")
	number(func(v float64) { g.Sampling.PresencePenalty = float32(v) }, "presence_penalty")
	number(func(v float64) { g.Sampling.FrequencyPenalty = float32(v) }, "frequency_penalty")
	number(func(v float64) { g.Sampling.Seed = uint64(max(v, 0)) }, "random_seed", "seed")
	for _, name := range []string{"stop_words", "stop"} {
		stop, failed := stopTexts(q.Parameters, name)
		err = cmp.Or(err, failed)
		g.Stop = append(g.Stop, stop...)
	}
	switch {
	case err != nil:
	case g.MaxTokens < 0:
		err = outboard.Errorf(outboard.Invalid, "generate", "max_tokens is %d", g.MaxTokens)
	case g.Sampling.Temperature < 0 || g.Sampling.RepeatPenalty < 0:
		err = outboard.Errorf(outboard.Invalid, "generate", "temperature and repetition_penalty must not be negative")
	default:
		err = g.Check()
	}
	return g, err
}

// stopTexts decodes a parameter that is a text or a list of texts. Clients send an empty text for
// none.
func stopTexts(all parameters, name string) ([]string, error) {
	text, ok := all[name]
	if !ok {
		return nil, nil
	}
	var one string
	var list []string
	if json.Unmarshal(text, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(text, &list) != nil {
		return nil, outboard.Errorf(outboard.Invalid, "generate", "parameter %q: want a text or a list of texts", name)
	}
	return slices.DeleteFunc(list, func(stop string) bool { return stop == "" }), nil
}

// maxGenerate bounds a request for text, in bytes.
const maxGenerate = 16 << 20

// generateStatus returns the status that the protocol names for an error of a generation.
func generateStatus(err error) int {
	switch outboard.KindOf(err) {
	case outboard.Invalid:
		return http.StatusUnprocessableEntity
	case outboard.Exhausted:
		return http.StatusTooManyRequests
	case outboard.NotFound:
		return http.StatusNotFound
	case outboard.Other:
		return http.StatusInternalServerError
	default:
		return http.StatusFailedDependency
	}
}

// open reads a request and opens its model.
func (h *Handler) open(w http.ResponseWriter, r *http.Request) (*generateRequest, engine.Generation, *generating, func(), error) {
	body, err := readBody(w, r, min(h.opts.MaxBody, maxGenerate))
	q := &generateRequest{}
	if err == nil {
		if err = json.Unmarshal(body, q); err != nil {
			err = outboard.Errorf(outboard.Invalid, "generate", "%w", err)
		}
	}
	var g engine.Generation
	if err == nil {
		g, err = q.generation()
	}
	if err != nil {
		return nil, g, nil, nil, err
	}
	g.CacheScope = h.opts.CacheScope(r.Context())
	m, err := h.openText(r, g.CacheScope)
	if err != nil {
		return nil, g, nil, nil, err
	}
	if g.Prompt, err = m.Tokenize(r.Context(), engine.Text{Content: q.Text, Special: true, Prompt: true, Bounded: true}); err != nil {
		m.Release()
		return nil, g, nil, nil, err
	}
	return q, g, m, m.Release, nil
}

// generating is a model for text whose generations continue on another node when their node is
// lost.
type generating struct {
	*text.Resuming
	version *repository.Version
}

// openText opens the model of a request. Its generation is executed by the replica where the first
// token is expected soonest, and of the version of the first replica.
func (h *Handler) openText(r *http.Request, scope string) (*generating, error) {
	g := &generating{}
	name, version := r.PathValue("model"), r.PathValue("version")
	open := func(ctx context.Context, prompt []int32, exclude []outboard.NodeID) (text.Replica, error) {
		t, release, err := h.opts.Models.OpenText(ctx, name, version, serve.Prompt{Tokens: prompt, CacheScope: scope}, exclude...)
		if err != nil {
			return text.Replica{}, err
		}
		g.version, name, version = t.Version, t.Version.Name, cmp.Or(version, t.Pinned)
		return text.Replica{Model: t, Node: t.Node, Release: release}, nil
	}
	var err error
	g.Resuming, err = text.OpenResuming(r.Context(), func(ctx context.Context, exclude []outboard.NodeID) (text.Replica, error) {
		return open(ctx, nil, exclude)
	})
	if err != nil {
		return nil, err
	}
	g.Place = func(ctx context.Context, prompt []int32) (text.Replica, error) { return open(ctx, prompt, nil) }
	return g, nil
}

func (h *Handler) generate(w http.ResponseWriter, r *http.Request) {
	q, g, m, release, err := h.open(w, r)
	if err != nil {
		writeJSON(w, generateStatus(err), map[string]string{"error": err.Error()})
		return
	}
	defer release()
	var answer strings.Builder
	usage, err := m.Generate(r.Context(), g, func(t engine.Token) error {
		answer.WriteString(t.Text)
		return nil
	})
	h.opts.Count(r.Context(), usage.PromptTokens, usage.GeneratedTokens)
	if err != nil {
		writeJSON(w, generateStatus(err), map[string]string{"error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, generateReply{ID: q.ID, Model: m.version.Name, Version: strconv.Itoa(m.version.Number), Text: answer.String()})
}

// generateStream answers with server-sent events, one for each token that adds text.
func (h *Handler) generateStream(w http.ResponseWriter, r *http.Request) {
	q, g, m, release, err := h.open(w, r)
	if err != nil {
		writeJSON(w, generateStatus(err), map[string]string{"error": err.Error()})
		return
	}
	defer release()
	flush, begun := http.NewResponseController(w), false
	send := func(value any) error {
		event, err := json.Marshal(value)
		if err != nil {
			return err
		}
		begun = true
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		if _, err := fmt.Fprintf(w, "data: %s\n\n", event); err != nil {
			return err
		}
		return flush.Flush()
	}
	reply := func(text string, done bool) generateReply {
		return generateReply{ID: q.ID, Model: m.version.Name, Version: strconv.Itoa(m.version.Number), Text: text, Done: &done}
	}
	usage, err := m.Generate(r.Context(), g, func(t engine.Token) error {
		if t.Text == "" {
			return nil
		}
		return send(reply(t.Text, false))
	})
	h.opts.Count(r.Context(), usage.PromptTokens, usage.GeneratedTokens)
	switch {
	case err == nil:
		_ = send(reply("", true)) // the client may have disconnected
	case r.Context().Err() != nil:
	case !begun:
		writeJSON(w, generateStatus(err), map[string]string{"error": err.Error()})
	default:
		_ = send(map[string]string{"error": err.Error()})
	}
}
