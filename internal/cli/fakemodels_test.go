package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/ollama"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

// fakeModels serves the part of a node's API that is about models. A model returns its inputs, and
// the language model "small" generates chat.Answer. The lock is that of the fakeNode.
type fakeModels struct {
	chat   *texttest.Backend
	pushes []client.ModelPush
	models []*client.ModelDetails
	keys   []client.ModelKey
	asked  []client.ModelKeyRequest
	infers []*serve.Request
}

var fakePushed = time.Date(2026, time.March, 1, 2, 3, 4, 0, time.UTC)

func (f *fakeModels) register(mux *http.ServeMux, handle func(string, func(*http.Request) (any, error))) {
	f.chat = &texttest.Backend{Answer: "Mont Blanc"}
	handle("GET /v1/models", func(*http.Request) (any, error) {
		all := []client.Model{}
		for _, m := range f.models {
			all = append(all, m.Model)
		}
		return all, nil
	})
	handle("POST /v1/models", f.push)
	handle("GET /v1/models/{name}", func(r *http.Request) (any, error) { return f.find(r.PathValue("name")) })
	handle("POST /v1/models/{name}/rollout", f.rollout)
	handle("POST /v1/models/{name}/rollback", f.rollback)
	handle("DELETE /v1/models/{name}", func(r *http.Request) (any, error) {
		m, err := f.find(r.PathValue("name"))
		f.models = slices.DeleteFunc(f.models, func(other *client.ModelDetails) bool { return other == m })
		return struct{}{}, err
	})
	handle("GET /v1/model-keys", func(*http.Request) (any, error) { return f.keys, nil })
	handle("POST /v1/model-keys", f.createKey)
	handle("DELETE /v1/model-keys/{name}", f.revokeKey)
	mux.Handle("/v2/", oip.New(oip.Options{Models: f}))
	mux.Handle("/api/", ollama.New(ollama.Options{Models: f.chat}))
}

func (f *fakeModels) find(name string) (*client.ModelDetails, error) {
	for _, m := range f.models {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, notThere("model", name)
}

// push refuses configurations with the word "batchez" in them, as a node refuses unknown members.
func (f *fakeModels) push(r *http.Request) (any, error) {
	var p client.ModelPush
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		return nil, err
	}
	f.pushes = append(f.pushes, p)
	if p.Config == "batchez: 3\n" {
		return nil, outboard.Errorf(outboard.Invalid, "", "%s:1: unknown member batchez", p.ConfigFile)
	}
	if p.Check {
		return client.PushedModel{}, nil
	}
	m, err := f.find(p.Name)
	if err != nil {
		m = &client.ModelDetails{
			Model:   client.Model{Name: p.Name, Engine: "onnx", State: "ready", Node: "harbour", Size: 5 << 20, By: "harbour", Pushed: fakePushed},
			Inputs:  []client.ModelTensor{{Name: "x", Type: "FP32", Shape: []int64{-1, 2}}},
			Outputs: []client.ModelTensor{{Name: "y", Type: "FP32", Shape: []int64{-1, 3}}},
			Placement: []client.ModelPlacement{
				{Node: "harbour", State: "ready", Cost: client.Duration(1500 * time.Microsecond), Why: "2 requests wait"},
				{Node: "dinghy", State: "unloaded", Why: "it has too little memory", Excluded: true},
			},
		}
		f.models = append(f.models, m)
	}
	return f.put(m, 0, p.NoWait), nil
}

// put puts a new version in force, a copy of the version of unless that is 0.
func (f *fakeModels) put(m *client.ModelDetails, of int, noWait bool) client.PushedModel {
	m.Version, m.Of, m.Canary = len(m.Versions)+1, of, 0
	m.Versions = append(m.Versions, client.ModelVersion{Version: m.Version, Of: of, Size: 5 << 20, Pushed: fakePushed, By: "harbour"})
	made := client.PushedModel{Name: m.Name, Version: m.Version, Of: of, Engine: m.Engine, Nodes: []outboard.NodeID{"harbour", "dinghy"}}
	if noWait {
		made.Nodes = nil
	}
	return made
}

func (f *fakeModels) rollout(r *http.Request) (any, error) {
	m, err := f.find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	var o client.ModelRollout
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, err
	}
	if o.Version > len(m.Versions) {
		return nil, outboard.Errorf(outboard.NotFound, "", "version %d of %s is not kept", o.Version, m.Name)
	}
	made := f.put(m, o.Version, o.NoWait)
	m.Canary = o.Canary
	return made, nil
}

func (f *fakeModels) rollback(r *http.Request) (any, error) {
	m, err := f.find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return f.put(m, m.Version-1, false), nil
}

func (f *fakeModels) createKey(r *http.Request) (any, error) {
	var ask client.ModelKeyRequest
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		return nil, err
	}
	f.asked = append(f.asked, ask)
	k := client.ModelKey{
		ID: "k" + string(rune('1'+len(f.keys))), Name: ask.Name, Created: fakePushed, Models: ask.Models, Admin: ask.Admin,
		RequestsPerMinute: ask.RequestsPerMinute, TokensPerMinute: ask.TokensPerMinute, Requests: 12, Refused: 3, PromptTokens: 40, GeneratedTokens: 2,
	}
	if ask.Life > 0 {
		k.Expires, k.LastUsed = fakePushed.Add(time.Duration(ask.Life)), fakePushed
	}
	f.keys = append(f.keys, k)
	k.Token = "obk-secret"
	return k, nil
}

func (f *fakeModels) revokeKey(r *http.Request) (any, error) {
	i := slices.IndexFunc(f.keys, func(k client.ModelKey) bool { return k.Name == r.PathValue("name") })
	if i < 0 {
		return nil, notThere("key", r.PathValue("name"))
	}
	k := f.keys[i]
	f.keys = slices.Delete(f.keys, i, i+1)
	return k, nil
}

// echoed finds what oip.Models serves: "echo" has the input x, "pair" the inputs a and b, "words"
// none.
func (f *fakeModels) echoed(name string) ([]model.Signature, error) {
	signature := func(names ...string) (list []model.Signature) {
		for _, n := range names {
			list = append(list, model.Signature{Name: n, Type: model.FP32, Shape: []int64{-1, 2}})
		}
		return list
	}
	switch name {
	case "echo":
		return signature("x"), nil
	case "pair":
		return signature("a", "b"), nil
	case "words":
		return nil, nil
	}
	return nil, notThere("model", name)
}

func (f *fakeModels) Refuse(*serve.Request, int) error { return nil }

func (f *fakeModels) Infer(_ context.Context, r *serve.Request) (*serve.Response, error) {
	if _, err := f.echoed(r.Model); err != nil {
		return nil, err
	}
	f.infers = append(f.infers, r)
	out := r.Inputs
	if len(r.Outputs) > 0 {
		out = slices.DeleteFunc(slices.Clone(out), func(t model.Tensor) bool { return !slices.Contains(r.Outputs, t.Name) })
	}
	return &serve.Response{Model: r.Model, Version: 3, Outputs: out}, nil
}

func (f *fakeModels) Describe(_ context.Context, name, version string) (*serve.Description, error) {
	s, err := f.echoed(name)
	return &serve.Description{
		Version: &repository.Version{Name: name, Number: 3, Engine: "fake"}, Versions: []string{cmp.Or(version, "3")},
		Info: engine.Info{Platform: "fake", Inputs: s, Outputs: s, BatchDimension: true},
	}, err
}

func (f *fakeModels) Ready(name, _ string) (bool, error) {
	_, err := f.echoed(name)
	return true, err
}

func (f *fakeModels) Index() []serve.Index                       { return nil }
func (f *fakeModels) Stats() []serve.ModelStats                  { return nil }
func (f *fakeModels) Load(context.Context, string, string) error { return nil }
func (f *fakeModels) Unload(string) error                        { return nil }

func (f *fakeModels) OpenText(context.Context, string, string, serve.Prompt, ...outboard.NodeID) (*serve.Text, func(), error) {
	return nil, nil, outboard.Errorf(outboard.Invalid, "", "the model has no text")
}
