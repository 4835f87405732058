package text

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// counter is a model whose next token is the last one and 1; it is lost after some tokens.
type counter struct {
	Model
	lives int
	err   error
	seen  *[]engine.Generation
}

func (c *counter) Generate(_ context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	*c.seen = append(*c.seen, g)
	last := g.Prompt[len(g.Prompt)-1]
	for i := range g.MaxTokens {
		if i == c.lives {
			return engine.Usage{}, c.err
		}
		t := engine.Token{ID: last + int32(i) + 1}
		if i == g.MaxTokens-1 {
			t.Last = engine.FinishLength
		}
		if err := emit(t); err != nil {
			return engine.Usage{}, err
		}
	}
	return engine.Usage{}, nil
}

func TestGenerationGoesOnElsewhere(t *testing.T) {
	lost := outboard.Errorf(outboard.Unreachable, "", "the node died")
	refused := outboard.Errorf(outboard.Invalid, "", "no")
	for name, c := range map[string]struct {
		lives []int // tokens until each replica is lost
		err   error
		want  int // tokens in the end
	}{
		"whole":      {[]int{100}, nil, 10},
		"one lost":   {[]int{3, 100}, nil, 10},
		"at once":    {[]int{0, 0, 100}, nil, 10},
		"after all":  {[]int{9, 1}, nil, 10},
		"all lost":   {[]int{1, 1, 1, 1, 1}, lost, 4},
		"other kind": {[]int{2, 100}, refused, 2},
	} {
		var seen []engine.Generation
		var excluded []outboard.NodeID
		opened, released := 0, 0
		open := func(_ context.Context, exclude []outboard.NodeID) (Replica, error) {
			excluded = exclude
			r := Replica{Model: &counter{lives: c.lives[opened], err: lost, seen: &seen}, Node: outboard.NodeID(rune('a' + opened)), Release: func() { released++ }}
			if errors.Is(c.err, refused) {
				r.Model.(*counter).err = refused
			}
			opened++
			return r, nil
		}
		m, err := OpenResuming(t.Context(), open)
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		usage, err := m.Generate(t.Context(), engine.Generation{Prompt: []int32{7}, MaxTokens: 10}, func(t engine.Token) error {
			got = append(got, t.ID)
			return nil
		})
		if !errors.Is(err, c.err) || len(got) != c.want || usage.GeneratedTokens != c.want || usage.PromptTokens != 1 {
			t.Errorf("%s: %v, %+v, %v; want %d tokens, %v", name, got, usage, err, c.want, c.err)
		}
		for i, id := range got {
			if id != int32(8+i) {
				t.Errorf("%s: tokens %v", name, got)
			}
		}
		if len(excluded) != opened-1 || released != opened-1 {
			t.Errorf("%s: %d opened, %v excluded, %d released", name, opened, excluded, released)
		}
		last := seen[len(seen)-1]
		if last.Continued+1 != len(last.Prompt) || last.MaxTokens+last.Continued != 10 {
			t.Errorf("%s: the last request continues %d of %v, with %d to come", name, last.Continued, last.Prompt, last.MaxTokens)
		}
	}
	var seen []engine.Generation
	gone := errors.New("the client has gone")
	m := Resuming{Replica: Replica{Model: &counter{lives: 100, seen: &seen}}}
	if _, err := m.Generate(t.Context(), engine.Generation{Prompt: []int32{7}, MaxTokens: 5}, func(engine.Token) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("error %v of emit", err)
	}
	if !slices.Equal(seen[0].Prompt, []int32{7}) {
		t.Errorf("the request was changed to %v", seen[0].Prompt)
	}
}

// A generation that ends two processes without a token between them does not end a third one.
func TestGenerationThatEndsProcesses(t *testing.T) {
	crash := &engine.Crash{Reason: outboard.Errorf(outboard.Unreachable, "", "the process ended")}
	for name, c := range map[string]struct {
		lives  []int // tokens until each replica ends
		opened int
		ok     bool
	}{
		"a prompt":         {[]int{0, 0, 100}, 2, false},
		"a token":          {[]int{3, 0, 100}, 2, false},
		"another's prompt": {[]int{0, 100}, 2, true},
		"with progress":    {[]int{3, 2, 1, 100}, 4, true},
		"late":             {[]int{0, 2, 0, 100}, 3, false},
	} {
		var seen []engine.Generation
		opened := 0
		m, err := OpenResuming(t.Context(), func(context.Context, []outboard.NodeID) (Replica, error) {
			opened++
			return Replica{Model: &counter{lives: c.lives[opened-1], err: crash, seen: &seen}, Node: outboard.NodeID(rune('a' + opened)), Release: func() {}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Generate(t.Context(), engine.Generation{Prompt: []int32{7}, MaxTokens: 10}, func(engine.Token) error { return nil })
		if (err == nil) != c.ok || opened != c.opened || err != nil && outboard.KindOf(err) != outboard.Other {
			t.Errorf("%s: %v after %d replicas", name, err, opened)
		}
	}
}

// A prompt is continued where its place is, and that replica is released afterwards. Until then the prompt
// counts as work of its node, also of the first replica's.
func TestGenerationIsPlacedByItsPrompt(t *testing.T) {
	var seen, placed []engine.Generation
	released := 0
	m, err := OpenResuming(t.Context(), func(context.Context, []outboard.NodeID) (Replica, error) {
		return Replica{Model: &counter{lives: 9, seen: &seen}, Node: "a", Release: func() {}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Place = func(_ context.Context, prompt []int32) (Replica, error) {
		if prompt[0] == 1 {
			return Replica{}, errors.New("nobody knows")
		}
		return Replica{Model: &counter{lives: 9, seen: &placed}, Node: outboard.NodeID(" ab"[prompt[0]-1:][:1]), Release: func() { released++ }}, nil
	}
	for i, first := range []int32{1, 2, 3} {
		before := released
		_, err := m.Generate(t.Context(), engine.Generation{Prompt: []int32{first}, MaxTokens: 3}, func(engine.Token) error {
			if released != before {
				t.Errorf("prompt %d is released before its end", first)
			}
			return nil
		})
		if err != nil || released != i {
			t.Fatalf("prompt %d: %v, released %d times", first, err, released)
		}
	}
	if len(seen) != 2 || len(placed) != 1 || placed[0].Prompt[0] != 3 {
		t.Errorf("%d generations stayed, %d were placed, %d released", len(seen), len(placed), released)
	}
}

// A calling is a model whose calls are answered with its node, unless err is set.
type calling struct {
	Model
	node string
	err  error
}

func (c *calling) Tokenize(context.Context, engine.Text) ([]int32, error) {
	return []int32{int32(c.node[0])}, c.err
}

func (c *calling) Render(context.Context, engine.Conversation) (string, error) { return c.node, c.err }

func (c *calling) Embed(context.Context, []int32) ([]float32, error) {
	return []float32{float32(c.node[0])}, c.err
}

// The first calls of a request, and embeddings, go on elsewhere too when a node is lost that is still
// listed; later calls go there at once.
func TestCallsGoOnElsewhere(t *testing.T) {
	lost := outboard.Errorf(outboard.Unreachable, "", "the node died")
	refused := outboard.Errorf(outboard.Invalid, "", "no")
	crash := &engine.Crash{Reason: lost}
	for name, c := range map[string]struct {
		errs []error // of each node
		err  error
		node byte // that answers
	}{
		"whole":      {[]error{nil}, nil, 'a'},
		"one lost":   {[]error{lost, nil}, nil, 'b'},
		"two lost":   {[]error{lost, lost, nil}, nil, 'c'},
		"all lost":   {[]error{lost, lost}, lost, 0},
		"crash":      {[]error{crash, nil}, nil, 'b'},
		"crashes":    {[]error{crash, crash, nil}, crash, 0},
		"other kind": {[]error{lost, refused, nil}, refused, 0},
	} {
		opened, released := 0, 0
		m, err := OpenResuming(t.Context(), func(_ context.Context, exclude []outboard.NodeID) (Replica, error) {
			if opened == len(c.errs) {
				return Replica{}, errors.New("there is no other node")
			}
			if len(exclude) != opened {
				t.Errorf("%s: %v are excluded, and %d were opened", name, exclude, opened)
			}
			node := string(rune('a' + opened))
			opened++
			return Replica{Model: &calling{node: node, err: c.errs[opened-1]}, Node: outboard.NodeID(node), Release: func() { released++ }}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := m.Tokenize(t.Context(), engine.Text{})
		if !errors.Is(err, c.err) || err == nil && tokens[0] != int32(c.node) {
			t.Errorf("%s: tokens %v, %v", name, tokens, err)
		}
		if c.err == nil {
			if prompt, err := m.Render(t.Context(), engine.Conversation{}); err != nil || prompt[0] != c.node {
				t.Errorf("%s: prompt %q, %v", name, prompt, err)
			}
			if v, err := m.Embed(t.Context(), nil); err != nil || v[0] != float32(c.node) {
				t.Errorf("%s: embedding %v, %v", name, v, err)
			}
		}
		if m.Release(); released != opened {
			t.Errorf("%s: %d opened, %d released", name, opened, released)
		}
	}
}
