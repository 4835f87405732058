package process

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
	"github.com/outboard-run/outboard/internal/need"
)

// A fakeServer answers as llama-server, vLLM and SGLang do, by llama.cpp in this process.
type fakeServer struct {
	engine.TextModel
	incremental bool // SGLang's --incremental-streaming-output
	running     atomic.Int64
}

// A fakeRequest has the members of requests of all of them.
type fakeRequest struct {
	Prompt      json.RawMessage `json:"prompt"`
	Content     string          `json:"content"`
	Input       []int32         `json:"input"`
	Predict     int             `json:"n_predict"`
	MaxTokens   int             `json:"max_tokens"`
	Temperature float32         `json:"temperature"`
	Seed        uint64          `json:"seed"`
	Stop        []string        `json:"stop"`
	IgnoreEnd   bool            `json:"ignore_eos"`
	Grammar     string          `json:"grammar"`
	Structured  struct {
		Grammar string `json:"grammar"`
	} `json:"structured_outputs"`
	Probs    *int            `json:"n_probs"`
	LogProbs *int            `json:"logprobs"`
	Bias     json.RawMessage `json:"logit_bias"`
	Salt     string          `json:"cache_salt"`   // vLLM's
	Cached   *bool           `json:"cache_prompt"` // of llama-server

	// SGLang's
	InputIDs json.RawMessage `json:"input_ids"`
	Sampling struct {
		MaxTokens   int             `json:"max_new_tokens"`
		Temperature float32         `json:"temperature"`
		Seed        uint64          `json:"sampling_seed"`
		Stop        []string        `json:"stop"`
		IgnoreEnd   bool            `json:"ignore_eos"`
		Grammar     string          `json:"ebnf"`
		Bias        json.RawMessage `json:"logit_bias"`
	} `json:"sampling_params"`
	TopLogProbs *int `json:"top_logprobs_num"`
}

// unify sets the members of the others by SGLang's.
func (q *fakeRequest) unify() {
	s := &q.Sampling
	q.Prompt, q.LogProbs, q.Bias = q.InputIDs, q.TopLogProbs, s.Bias
	q.MaxTokens, q.Temperature, q.Seed, q.Stop, q.Grammar = s.MaxTokens, s.Temperature, s.Seed, s.Stop, s.Grammar
	q.IgnoreEnd = s.IgnoreEnd
}

// generation is the request as this engine's contract has it.
func (q *fakeRequest) generation() (engine.Generation, error) {
	g := engine.Generation{MaxTokens: max(q.Predict, q.MaxTokens), Stop: q.Stop, IgnoreEnd: q.IgnoreEnd, Grammar: q.Grammar + q.Structured.Grammar, LogProbs: -1}
	if g.CacheScope = q.Salt; q.Cached != nil && !*q.Cached {
		g.CacheScope = rand.Text() // shares with no other
	}
	g.Sampling = engine.Sampling{Temperature: q.Temperature, Seed: q.Seed, Bias: map[int32]float32{}}
	for _, n := range []*int{q.Probs, q.LogProbs} {
		if n != nil {
			g.LogProbs = *n
		}
	}
	var pairs [][2]float64
	var named map[string]float32
	if json.Unmarshal(q.Bias, &pairs) == nil {
		for _, p := range pairs {
			g.Sampling.Bias[int32(p[0])] = float32(p[1])
		}
	} else if json.Unmarshal(q.Bias, &named) == nil {
		for id, bias := range named {
			n, err := strconv.Atoi(id)
			if err != nil {
				return g, err
			}
			g.Sampling.Bias[int32(n)] = bias
		}
	}
	return g, json.Unmarshal(q.Prompt, &g.Prompt)
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q fakeRequest
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	info := f.Info()
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/health":
	case "/metrics":
		fmt.Fprintf(w, "# HELP x y\nllamacpp:requests_processing %d\nllamacpp:requests_deferred 0\n", f.running.Load())
	case "/v1/models":
		reply(map[string]any{"data": []any{map[string]any{
			"id": "fake", "max_model_len": info.Context, "meta": map[string]any{"n_vocab": info.Vocabulary, "n_embd": info.Embedding},
		}}})
	case "/props":
		reply(map[string]any{"total_slots": info.Sequences, "default_generation_settings": map[string]any{"n_ctx": info.Context}})
	case "/tokenize":
		text := q.Content
		_ = json.Unmarshal(q.Prompt, &text) // vLLM's
		tokens, err := f.Tokenize(r.Context(), engine.Text{Content: text, Special: true})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(map[string]any{"tokens": tokens})
	case "/v1/embeddings":
		v, err := f.Embed(r.Context(), q.Input)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(map[string]any{"data": []any{map[string]any{"embedding": v}}})
	case "/completion":
		f.generate(w, r, &q, llamaEvent)
	case "/v1/completions":
		f.generate(w, r, &q, vllmEvent)
	case "/generate":
		q.unify()
		f.generate(w, r, &q, f.sglangEvents())
	default:
		http.NotFound(w, r)
	}
}

// generate streams a generation. event returns the event for a token, or for the end.
func (f *fakeServer) generate(w http.ResponseWriter, r *http.Request, q *fakeRequest, event func(t *engine.Token, u engine.Usage) any) {
	f.running.Add(1)
	defer f.running.Add(-1)
	g, err := q.generation()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flush := http.NewResponseController(w)
	sent := false
	send := func(v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		sent = true
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return err
		}
		return flush.Flush()
	}
	usage, err := f.Generate(r.Context(), g, func(t engine.Token) error { return send(event(&t, engine.Usage{})) })
	switch {
	case err == nil:
		_ = send(event(nil, usage)) // the client may be gone
		_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
	case !sent:
		status := http.StatusBadRequest
		if outboard.KindOf(err) == outboard.Unreachable {
			status = http.StatusServiceUnavailable
		}
		http.Error(w, err.Error(), status)
	}
}

// llamaEvent is an event of llama-server, which tells the end in one of its own.
func llamaEvent(t *engine.Token, u engine.Usage) any {
	if t == nil {
		return map[string]any{"content": "", "tokens": []int32{}, "stop": true, "stop_type": "limit", "timings": map[string]any{"cache_n": u.CachedTokens}}
	}
	var top []map[string]any
	for _, c := range t.Top {
		top = append(top, map[string]any{"id": c.ID, "token": c.Text, "logprob": c.LogProb})
	}
	event := map[string]any{
		"content": t.Text, "tokens": []int32{t.ID}, "stop": false,
		"completion_probabilities": []any{map[string]any{"id": t.ID, "logprob": t.LogProb, "top_logprobs": top}},
	}
	if t.Last == engine.FinishStop {
		event["stop"], event["stop_type"] = true, "word"
	}
	return event
}

// vllmEvent is an event of vLLM, which tells the usage in one of its own.
func vllmEvent(t *engine.Token, u engine.Usage) any {
	if t == nil {
		return map[string]any{"choices": []any{}, "usage": map[string]any{"prompt_tokens_details": map[string]any{"cached_tokens": u.CachedTokens}}}
	}
	choice := map[string]any{"text": t.Text, "token_ids": []int32{t.ID}}
	if t.Last != "" {
		choice["finish_reason"] = string(t.Last)
	}
	return map[string]any{"choices": []any{choice}}
}

// sglangEvents returns the function for the events of one of SGLang's streams, which repeat what earlier
// events had unless the server streams incrementally. The end has an event of its own.
func (f *fakeServer) sglangEvents() func(t *engine.Token, u engine.Usage) any {
	var text string
	var ids []int32
	var probs, top []any
	candidate := func(p float32, id int32, text string) any { return []any{p, id, text} }
	generated := 0
	return func(t *engine.Token, u engine.Usage) any {
		if f.incremental {
			text, ids, probs, top = "", []int32{}, nil, nil
		}
		var reason any
		if t != nil {
			generated++
			text, ids, probs = text+t.Text, append(ids, t.ID), append(probs, candidate(t.LogProb, t.ID, t.Text))
			var list []any
			for _, c := range t.Top {
				list = append(list, candidate(c.LogProb, c.ID, c.Text))
			}
			top = append(top, list)
			if t.Last != "" {
				reason = map[string]any{"type": string(t.Last)}
			}
		} else {
			reason = map[string]any{"type": "length"}
		}
		return map[string]any{"text": text, "output_ids": ids, "meta_info": map[string]any{
			"finish_reason": reason, "completion_tokens": generated, "cached_tokens": u.CachedTokens, "output_token_logprobs": probs, "output_top_logprobs": top,
		}}
	}
}

// loadFake serves a model by a fake server of a kind.
func loadFake(t *testing.T, kind string, source engine.Source, o engine.Options) engine.TextModel {
	t.Helper()
	return loadFakeOf(t, kind, false, source, o)
}

func loadFakeOf(t *testing.T, kind string, incremental bool, source engine.Source, o engine.Options) engine.TextModel {
	t.Helper()
	own, err := (llama.Engine{}).Load(t.Context(), source, o)
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "run `make build`")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&fakeServer{TextModel: own.(engine.TextModel), incremental: incremental})
	t.Cleanup(func() {
		server.CloseClientConnections()
		_ = own.Close()
		server.Close()
	})
	e := &Engine{Servers: map[string]Server{"x": {Kind: kind, URL: server.URL}}}
	o.Server = "x"
	m, err := e.Load(t.Context(), source, o)
	if err != nil {
		t.Fatal(err)
	}
	return m.(engine.TextModel)
}

func TestContract(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(dialects)) {
		t.Run(kind, func(t *testing.T) {
			suite := enginetest.Server
			if kind == "vllm" {
				suite = enginetest.PlainServer
			}
			enginetest.TextOf(t, suite, func(t *testing.T, source engine.Source, o engine.Options) engine.TextModel {
				return loadFake(t, kind, source, o)
			})
		})
	}
	t.Run("sglang, incremental", func(t *testing.T) {
		enginetest.TextOf(t, enginetest.Server, func(t *testing.T, source engine.Source, o engine.Options) engine.TextModel {
			return loadFakeOf(t, "sglang", true, source, o)
		})
	})
}

func TestEmbed(t *testing.T) {
	source := enginetest.WriteModel(t, enginetest.Oracle().Builder())
	m := loadFake(t, "llama-server", source, engine.Options{})
	v, err := m.Embed(t.Context(), []int32{5, 6})
	if err != nil || len(v) != m.Info().Embedding {
		t.Errorf("%d values, %v", len(v), err)
	}
}
