package node

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/model/engine/builtin"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// modelsAPI is the part of the local API about models.
type modelsAPI struct {
	models    *models
	artifacts *artifact.Store
}

func (a *modelsAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/models", api.Answer(a.list))
	mux.HandleFunc("POST /v1/models", a.push)
	mux.HandleFunc("GET /v1/models/{model}", api.Answer(a.show))
	mux.HandleFunc("DELETE /v1/models/{model}", api.Answer(a.remove))
	mux.HandleFunc("POST /v1/models/{model}/rollout", a.rollout)
	mux.HandleFunc("POST /v1/models/{model}/rollback", api.Answer(a.rollback))
	mux.Handle("/v2/", a.models.oip) // a user who may open the socket may use the models
	mux.Handle("/api/", a.models.texts.ollama)
}

// push puts a version in force whose files are artifacts of this node already, and has the best
// nodes load it.
func (a *modelsAPI) push(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.PushedModel, error) {
		var p client.ModelPush
		if err := readBody(w, r, &p); err != nil {
			return client.PushedModel{}, err
		}
		v, err := a.versionOf(&p)
		if err != nil {
			return client.PushedModel{}, err
		}
		warnings := a.models.repository.Overlaps(&v)
		if p.Check {
			return client.PushedModel{Name: v.Name, Engine: v.Engine, Warnings: warnings}, nil
		}
		if !p.NoWait { // the version in force would get no requests any more
			if err := serve.CheckPlacement(r.Context(), a.models.server, &v); err != nil {
				return client.PushedModel{}, err
			}
		}
		if v, err = a.models.repository.Push(r.Context(), v); err != nil {
			return client.PushedModel{}, err
		}
		made, err := a.pushed(r.Context(), &v, p.NoWait)
		if outboard.KindOf(err) == outboard.Invalid {
			err = a.withdraw(r.Context(), &v, err)
		}
		made.Warnings = warnings
		return made, err
	})(w, r)
}

// withdraw rolls back a version that no node can load, unless another one has replaced it, and
// returns the reason as an error.
func (a *modelsAPI) withdraw(ctx context.Context, v *repository.Version, why error) error {
	before, err := a.models.repository.Withdraw(ctx, v.Name, v.Number)
	switch {
	case outboard.KindOf(err) == outboard.Conflict:
		return why
	case err != nil:
		return errors.Join(why, err)
	case before.Number != 0:
		return outboard.Errorf(outboard.Invalid, "", "%w; version %d is in force again, as %d", why, before.Of, before.Number)
	}
	return why
}

// versionOf checks a client's push and returns its version.
func (a *modelsAPI) versionOf(p *client.ModelPush) (repository.Version, error) {
	v := repository.Version{Name: p.Name, Main: p.Main, Files: map[string]repository.File{}}
	var err error
	if v.Config, err = repository.ParseConfig(p.ConfigFile, []byte(p.Config)); err != nil {
		return v, err
	}
	if v.Engine = v.Config.Engine; v.Engine == "" {
		if v.Engine, err = builtin.For(p.Main); err != nil {
			return v, err
		}
	}
	for name, digest := range p.Files {
		size, err := a.artifacts.Size(digest)
		if err != nil {
			return v, err
		}
		v.Files[name] = repository.File{Digest: digest, Size: size}
	}
	return v, nil
}

// pushed loads a version that was put in force, on as many nodes as its configuration requires.
func (a *modelsAPI) pushed(ctx context.Context, v *repository.Version, noWait bool) (client.PushedModel, error) {
	result := client.PushedModel{Name: v.Name, Version: v.Number, Of: v.Of, Engine: v.Engine, Size: outboard.Bytes(v.Bytes())}
	if noWait {
		return result, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	if err := a.models.repository.Await(ctx, v.Name, v.Number); err != nil {
		return result, err
	}
	nodes, err := a.models.server.Place(ctx, v)
	result.Nodes = nodes
	if err != nil && outboard.KindOf(err) != outboard.Invalid { // which withdraws the version
		err = outboard.Errorf(outboard.KindOf(err), "", "version %d of %s is in force, but no node has loaded it yet: %w", v.Number, v.Name, err)
	}
	return result, err
}

func (a *modelsAPI) list(*http.Request) ([]client.Model, error) {
	all := []client.Model{}
	for _, x := range a.models.server.Index() {
		all = append(all, a.describe(&x))
	}
	return all, nil
}

func (a *modelsAPI) describe(x *serve.Index) client.Model {
	v := &x.Version
	m := client.Model{
		Name: v.Name, Version: v.Number, Of: v.Of, Engine: v.Engine, State: string(x.State), Reason: x.Reason, Node: x.Node,
		Size: outboard.Bytes(v.Bytes()), Pushed: v.Applied, By: v.By, Aliases: v.Config.Aliases, Canary: v.Canary,
	}
	if history, err := a.models.repository.Get(v.Name); err == nil {
		previous, _ := repository.Preceding(history)
		m.Previous = previous.Of
	}
	return m
}

func (a *modelsAPI) show(r *http.Request) (client.ModelDetails, error) {
	m, err := a.models.repository.Get(r.PathValue("model"))
	if err != nil {
		return client.ModelDetails{}, err
	}
	v := m.Current()
	d := client.ModelDetails{Files: map[string]string{}}
	for _, x := range a.models.server.Index() {
		if x.Version.Name == v.Name {
			d.Model = a.describe(&x)
		}
	}
	for name, f := range v.Files {
		d.Files[name] = f.Digest
	}
	for i := range m.Versions {
		old := &m.Versions[i]
		d.Versions = append(d.Versions, client.ModelVersion{Version: old.Number, Of: old.Of, Pushed: old.Applied, By: old.By, Size: outboard.Bytes(old.Bytes())})
	}
	for _, c := range a.models.server.Explain(v) {
		d.Placement = append(d.Placement, client.ModelPlacement{Node: c.Node, State: string(c.State), Cost: client.Duration(c.Cost), Why: c.Why, Excluded: c.Excluded})
	}
	if !slices.ContainsFunc(d.Placement, isReady) {
		return d, nil // describing it would load it
	}
	if described, err := a.models.server.Describe(r.Context(), v.Name, ""); err == nil {
		for _, s := range described.Info.Inputs {
			d.Inputs = append(d.Inputs, client.ModelTensor{Name: s.Name, Type: s.Type.String(), Shape: s.Shape})
		}
		for _, s := range described.Info.Outputs {
			d.Outputs = append(d.Outputs, client.ModelTensor{Name: s.Name, Type: s.Type.String(), Shape: s.Shape})
		}
	}
	return d, nil
}

func isReady(p client.ModelPlacement) bool { return p.State == string(serve.StateReady) }

func (a *modelsAPI) remove(r *http.Request) (api.Nothing, error) {
	return api.Nothing{}, a.models.repository.Remove(r.Context(), r.PathValue("model"))
}

func (a *modelsAPI) rollout(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.PushedModel, error) {
		var q client.ModelRollout
		if err := readBody(w, r, &q); err != nil {
			return client.PushedModel{}, err
		}
		v, err := a.models.repository.Rollout(r.Context(), r.PathValue("model"), q.Version, q.Canary)
		if err != nil {
			return client.PushedModel{}, err
		}
		made, err := a.pushed(r.Context(), &v, q.NoWait)
		if outboard.KindOf(err) == outboard.Invalid {
			err = a.withdraw(r.Context(), &v, err)
		}
		return made, err
	})(w, r)
}

func (a *modelsAPI) rollback(r *http.Request) (client.PushedModel, error) {
	v, err := a.models.repository.Rollback(r.Context(), r.PathValue("model"))
	if err != nil {
		return client.PushedModel{}, err
	}
	noWait, _ := strconv.ParseBool(r.URL.Query().Get("no_wait"))
	return a.pushed(r.Context(), &v, noWait)
}
