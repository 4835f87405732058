package oip_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// lossy has a model for text on the nodes a and b; that of a is lost after two tokens.
type lossy struct {
	echo
	released int
}

func (l *lossy) OpenText(_ context.Context, _, _ string, _ serve.Prompt, exclude ...outboard.NodeID) (*serve.Text, func(), error) {
	node := outboard.NodeID("a")
	if slices.Contains(exclude, node) {
		node = "b"
	}
	t := &serve.Text{TextModel: &numbers{node: node}, Node: node, Version: &repository.Version{Name: "m", Number: 3}}
	return t, func() { l.released++ }, nil
}

// numbers continues a prompt by its length and the numbers that follow.
type numbers struct {
	engine.TextModel
	node outboard.NodeID
}

func (*numbers) Tokenize(context.Context, engine.Text) ([]int32, error) { return []int32{0}, nil }

func (m *numbers) Generate(_ context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	for i := range g.MaxTokens {
		if m.node == "a" && i == 2 {
			return engine.Usage{}, outboard.Errorf(outboard.Unreachable, "", "the node died")
		}
		n := len(g.Prompt) + i
		t := engine.Token{ID: int32(n), Text: fmt.Sprint(n)}
		if i == g.MaxTokens-1 {
			t.Last = engine.FinishLength
		}
		if err := emit(t); err != nil {
			return engine.Usage{}, err
		}
	}
	return engine.Usage{}, nil
}

// A generation of the protocol goes on from another node when its node is lost.
func TestGenerateGoesOnElsewhere(t *testing.T) {
	models := &lossy{}
	h := oip.New(oip.Options{Models: models})
	const request = `{"text_input":"x","parameters":{"max_tokens":5}}`
	if got := send(t, h, "POST", "/v2/models/m/generate", request); got.Code != 200 || !strings.Contains(got.Body.String(), `"text_output":"12345"`) {
		t.Errorf("generate: %d %s", got.Code, got.Body)
	}
	got := send(t, h, "POST", "/v2/models/m/generate_stream", request).Body.String()
	for n := 1; n <= 5; n++ {
		if want := fmt.Sprintf(`"text_output":"%d"`, n); strings.Count(got, want) != 1 {
			t.Errorf("generate_stream: %s is not there once: %s", want, got)
		}
	}
	if !strings.Contains(got, `"done":true`) || models.released != 6 { // three replicas each: the first one, the best for the prompt, and the next
		t.Errorf("%d released, %s", models.released, got)
	}
}

// The error of a stream without an event has its status, as without a stream.
func TestStreamThatDoesNotBegin(t *testing.T) {
	got := send(t, oip.New(oip.Options{Models: &refusing{}}), "POST", "/v2/models/m/generate_stream", `{"text_input":"x"}`)
	if got.Code != 422 || got.Header().Get("Content-Type") != "application/json" || got.Body.String() != `{"error":"prompt: it is too long"}` {
		t.Errorf("%d %v: %s", got.Code, got.Header(), got.Body)
	}
}

// refusing has a model that refuses every prompt.
type refusing struct{ echo }

func (*refusing) OpenText(context.Context, string, string, serve.Prompt, ...outboard.NodeID) (*serve.Text, func(), error) {
	return &serve.Text{TextModel: &refuser{}, Version: &repository.Version{Name: "m", Number: 3}}, func() {}, nil
}

type refuser struct{ numbers }

func (*refuser) Generate(context.Context, engine.Generation, func(engine.Token) error) (engine.Usage, error) {
	return engine.Usage{}, outboard.Errorf(outboard.Invalid, "prompt", "it is too long")
}

// preferring has a model on the nodes a and b; b has the state of prompts.
type preferring struct {
	echo
	opened []string // version and node of each replica
}

func (p *preferring) OpenText(_ context.Context, _, version string, prompt serve.Prompt, _ ...outboard.NodeID) (*serve.Text, func(), error) {
	node := outboard.NodeID("a")
	if len(prompt.Tokens) > 0 && prompt.CacheScope == "tea" {
		node = "b"
	}
	p.opened = append(p.opened, version+string(node))
	t := &serve.Text{TextModel: &naming{node: node}, Node: node, Version: &repository.Version{Name: "m", Number: 3}, Pinned: "3"}
	return t, func() {}, nil
}

// naming continues a prompt by the name of its node.
type naming struct {
	engine.TextModel
	node outboard.NodeID
}

func (*naming) Tokenize(context.Context, engine.Text) ([]int32, error) { return []int32{0, 1}, nil }

func (m *naming) Generate(_ context.Context, _ engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	return engine.Usage{}, emit(engine.Token{Text: "on " + string(m.node), Last: engine.FinishLength})
}

// A generation is executed where its prompt is cached, by the version of a canary's pair that was
// chosen first.
func TestGenerateIsPlacedByPrompt(t *testing.T) {
	models := &preferring{}
	h := oip.New(oip.Options{Models: models, CacheScope: func(context.Context) string { return "tea" }})
	got := send(t, h, "POST", "/v2/models/m/generate", `{"text_input":"x"}`)
	if got.Code != 200 || !strings.Contains(got.Body.String(), `"text_output":"on b"`) {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if want := []string{"a", "3b"}; !slices.Equal(models.opened, want) {
		t.Errorf("opened %q, want %q", models.opened, want)
	}
}

// recorded has a model that records its last generation.
type recorded struct {
	echo
	recorder
}

func (r *recorded) OpenText(context.Context, string, string, serve.Prompt, ...outboard.NodeID) (*serve.Text, func(), error) {
	return &serve.Text{TextModel: &r.recorder, Version: &repository.Version{Name: "m", Number: 3}}, func() {}, nil
}

type recorder struct {
	numbers
	last engine.Generation
}

func (r *recorder) Generate(_ context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	r.last = g
	return engine.Usage{}, emit(engine.Token{Last: engine.FinishLength})
}

// Parameters are members of the request, as Triton's backends declare them, or of its parameters.
func TestGenerateParameters(t *testing.T) {
	generation := func(maxTokens int, s engine.Sampling, stop ...string) engine.Generation {
		return engine.Generation{Prompt: []int32{0}, LogProbs: -1, MaxTokens: maxTokens, Sampling: s, Stop: stop}
	}
	for name, c := range map[string]struct {
		request string
		want    engine.Generation
	}{
		"members": {
			`"max_tokens":5,"temperature":0.5,"top_k":4,"top_p":0.25,"seed":7,"stop":["a","b"],"stream":false`,
			generation(5, engine.Sampling{Temperature: 0.5, TopK: 4, TopP: 0.25, Seed: 7}, "a", "b"),
		},
		"TensorRT-LLM": {
			`"max_tokens":5,"bad_words":"","stop_words":"","random_seed":7,"repetition_penalty":1.5,"presence_penalty":0.5,"frequency_penalty":0.25`,
			generation(5, engine.Sampling{Seed: 7, RepeatPenalty: 1.5, PresencePenalty: 0.5, FrequencyPenalty: 0.25}),
		},
		"both": {`"max_tokens":5,"seed":7,"parameters":{"max_tokens":6,"stop":"a"}`, generation(6, engine.Sampling{Seed: 7}, "a")},
	} {
		t.Run(name, func(t *testing.T) {
			models := &recorded{}
			got := send(t, oip.New(oip.Options{Models: models}), "POST", "/v2/models/m/generate", `{"text_input":"x",`+c.request+`}`)
			if diff := gocmp.Diff(models.recorder.last, c.want, cmpopts.EquateEmpty()); got.Code != 200 || diff != "" {
				t.Errorf("%d %s: %s", got.Code, got.Body, diff)
			}
		})
	}
	for name, request := range map[string]string{
		"type":        `"max_tokens":"5"`,
		"infinite":    `"temperature":1e39`,
		"penalty":     `"presence_penalty":-1e39`,
		"negative":    `"max_tokens":-1`,
		"temperature": `"temperature":-1`,
		"stop":        `"stop":5`,
		"many":        `"stop":[` + strings.Repeat(`"a",`, engine.MaxStops) + `"a"]`,
	} {
		if got := send(t, oip.New(oip.Options{Models: &recorded{}}), "POST", "/v2/models/m/generate", `{"text_input":"x",`+request+`}`); got.Code != 422 {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
}
