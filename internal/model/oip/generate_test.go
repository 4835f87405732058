package oip_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
