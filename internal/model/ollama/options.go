package ollama

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/grammar"
	"github.com/outboard-run/outboard/internal/model/text"
)

// runOptions are Ollama's options.
type runOptions struct {
	knownOptions
}

type knownOptions struct {
	NumPredict       *int     `json:"num_predict"`
	NumContext       int      `json:"num_ctx"`
	Temperature      *float32 `json:"temperature"`
	TopK             *int     `json:"top_k"`
	TopP             *float32 `json:"top_p"`
	MinP             float32  `json:"min_p"`
	Seed             *int64   `json:"seed"`
	Stop             []string `json:"stop"`
	RepeatPenalty    float32  `json:"repeat_penalty"`
	RepeatLast       *int     `json:"repeat_last_n"`
	PresencePenalty  float32  `json:"presence_penalty"`
	FrequencyPenalty float32  `json:"frequency_penalty"`
}

// runnerOptions determine how Ollama loads a model; here its configuration does. num_keep and the
// numbers of mirostat have no effect without what they configure.
//
//nolint:gochecknoglobals // a table
var runnerOptions = []string{
	"num_keep", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "use_mmap", "use_mlock", "num_thread", "numa", "vocab_only",
	"logits_all", "embedding_only", "mirostat_eta", "mirostat_tau",
}

// disabled are the values with which options that are not supported have no effect.
//
//nolint:gochecknoglobals // a table
var disabled = map[string][]float64{"mirostat": {0}, "tfs_z": {0, 1}, "typical_p": {0, 1}}

// UnmarshalJSON implements json.Unmarshaler. It refuses options that have no effect here.
func (o *runOptions) UnmarshalJSON(encoded []byte) error {
	if err := json.Unmarshal(encoded, &o.knownOptions); err != nil {
		return err
	}
	var all bounded.Map[json.RawMessage]
	if err := json.Unmarshal(encoded, &all); err != nil {
		return err
	}
	for name, value := range all {
		if err := checkOption(name, value); err != nil {
			return err
		}
	}
	if n := o.RepeatLast; n != nil && *n != 0 && *n != engine.PenaltyWindow {
		return invalid("options.repeat_last_n is %d: penalties count the last %d tokens; 0 turns them off", *n, engine.PenaltyWindow)
	}
	return nil
}

// optionNames are the names of the known options.
//
//nolint:gochecknoglobals // a table
var optionNames = []string{
	"num_predict", "num_ctx", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_penalty", "repeat_last_n", "presence_penalty",
	"frequency_penalty",
}

func checkOption(name string, value json.RawMessage) error {
	if slices.Contains(optionNames, name) || slices.Contains(runnerOptions, name) || string(value) == "null" {
		return nil
	}
	if name == "penalize_newline" && string(value) == "false" {
		return nil
	}
	var number float64
	if neutral, known := disabled[name]; known && json.Unmarshal(value, &number) == nil && slices.Contains(neutral, number) {
		return nil
	}
	return invalid("options.%.40s is not supported", name)
}

// Ollama's defaults.
const (
	defaultTemperature = 0.8
	defaultTopK        = 40
	defaultTopP        = 0.9
)

// maxTop is the most tokens of top_logprobs.
const maxTop = 20

// sampling returns how the options choose tokens.
func (o *runOptions) sampling() (engine.Sampling, error) {
	s := engine.Sampling{
		Temperature: defaultTemperature, TopK: defaultTopK, TopP: defaultTopP, MinP: o.MinP, Seed: rand.Uint64(),
		RepeatPenalty: o.RepeatPenalty, PresencePenalty: o.PresencePenalty, FrequencyPenalty: o.FrequencyPenalty,
	}
	if o.RepeatLast != nil && *o.RepeatLast == 0 {
		s.RepeatPenalty, s.PresencePenalty, s.FrequencyPenalty = 0, 0, 0
	}
	if o.Temperature != nil {
		s.Temperature = *o.Temperature
	}
	if o.TopK != nil {
		s.TopK = max(*o.TopK, 0)
	}
	if o.TopP != nil { // 0 is the likeliest token here, and all of them for engines
		s.TopP = max(*o.TopP, math.SmallestNonzeroFloat32)
	}
	if o.Seed != nil && *o.Seed != -1 { // -1 is a random seed
		s.Seed = uint64(*o.Seed)
	}
	if t := float64(s.Temperature); math.IsNaN(t) || t < 0 || o.RepeatPenalty < 0 {
		return s, invalid("options: temperature and repeat_penalty must not be negative")
	}
	return s, nil
}

// generation returns the generation that a request specifies, without a prompt.
func (q *request) generation() (engine.Generation, error) {
	g := engine.Generation{LogProbs: -1, Stop: q.Options.Stop}
	var err error
	if g.Sampling, err = q.Options.sampling(); err != nil {
		return g, err
	}
	if q.Options.NumPredict != nil {
		g.MaxTokens = max(*q.Options.NumPredict, 0) // -1 and -2: without a limit
	}
	switch {
	case q.TopLogProbs < 0 || q.TopLogProbs > maxTop:
		return g, invalid("top_logprobs must be between 0 and %d", maxTop)
	case q.TopLogProbs > 0 && !q.LogProbs:
		return g, invalid("top_logprobs needs logprobs")
	case q.Shift != nil && *q.Shift:
		return g, invalid("shift is not supported: an answer ends when the context is full")
	case q.LogProbs:
		g.LogProbs = q.TopLogProbs
	}
	if err = g.Check(); err == nil {
		g.Grammar, err = q.grammar()
	}
	return g, err
}

// grammar returns the grammar of the request's format.
func (q *request) grammar() (string, error) {
	switch format := bytes.TrimSpace(q.Format); {
	case len(format) == 0, string(format) == `""`, string(format) == "null":
		return "", nil
	case string(format) == `"json"`:
		return grammar.Object(), nil
	case format[0] == '{':
		return grammar.FromSchema(format)
	default:
		return "", invalid(`format must be "json" or a JSON schema`)
	}
}

// limitContext applies num_ctx to a generation. A larger one than the model's own context is reduced
// to that, as Ollama does.
func (o *runOptions) limitContext(g *engine.Generation) error {
	if o.NumContext <= 0 {
		return nil
	}
	available := o.NumContext - len(g.Prompt)
	if available <= 0 {
		return invalid("prompt: it has %d tokens, and options.num_ctx is %d", len(g.Prompt), o.NumContext)
	}
	if g.MaxTokens == 0 || g.MaxTokens > available {
		g.MaxTokens = available
	}
	return nil
}

// A think determines whether, and how much, a model thinks before it answers.
type think struct {
	on     bool
	effort string
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *think) UnmarshalJSON(encoded []byte) error {
	if json.Unmarshal(encoded, &t.on) == nil {
		return nil
	}
	if err := json.Unmarshal(encoded, &t.effort); err == nil && slices.Contains([]string{"low", "medium", "high"}, t.effort) {
		t.on = true
		return nil
	}
	return invalid(`think is %.40s: want true, false, "low", "medium" or "high"`, encoded)
}

// variables returns the variables of a chat template.
func (t *think) variables(name, template string) (json.RawMessage, error) {
	if t == nil {
		return nil, nil
	}
	if t.effort != "" {
		variables, err := text.WithEffort(template, nil, t.effort)
		if err != nil {
			return nil, invalid("think: %w", err)
		}
		return variables, nil
	}
	variables, err := text.WithThinking(template, t.on)
	if err != nil {
		return nil, invalid("%q %w", name, err)
	}
	return variables, nil
}
