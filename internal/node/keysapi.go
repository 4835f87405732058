package node

import (
	"context"
	"net/http"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/model/keys"
)

// openKeys follows the API keys of the pool's models.
func (n *Node) openKeys(ctx context.Context) (lifecycle.Resource, error) {
	k, err := keys.Open(ctx, keys.Options{State: n.state, Self: n.self.ID, Log: n.opts.Log.With("plane", "model", "node", n.self.ID)})
	n.keys = k
	return k, err
}

// keysAPI is the part of the local API about API keys.
type keysAPI struct{ keys *keys.Keys }

func (a *keysAPI) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/model-keys", api.Answer(a.list))
	mux.HandleFunc("POST /v1/model-keys", a.create)
	mux.HandleFunc("DELETE /v1/model-keys/{key}", api.Answer(a.revoke))
}

func describeKey(k keys.Key, u keys.Usage) client.ModelKey {
	return client.ModelKey{
		ID: k.ID, Name: k.Name, Created: k.Created, Expires: k.Expires,
		Models: k.Models, RequestsPerMinute: k.RequestsPerMinute, TokensPerMinute: k.TokensPerMinute, Admin: k.Admin,
		Requests: u.Requests, Refused: u.Refused, PromptTokens: u.PromptTokens, GeneratedTokens: u.GeneratedTokens, LastUsed: u.LastUsed,
	}
}

func (a *keysAPI) list(*http.Request) ([]client.ModelKey, error) {
	list := []client.ModelKey{}
	for _, k := range a.keys.List() {
		list = append(list, describeKey(k.Key, k.Usage))
	}
	return list, nil
}

func (a *keysAPI) create(w http.ResponseWriter, r *http.Request) {
	api.Answer(func(r *http.Request) (client.ModelKey, error) {
		var q client.ModelKeyRequest
		if err := readBody(w, r, &q); err != nil {
			return client.ModelKey{}, err
		}
		key, token, err := a.keys.Create(r.Context(), q.Name, time.Duration(q.Life), keys.Limits{
			Models: q.Models, RequestsPerMinute: q.RequestsPerMinute, TokensPerMinute: q.TokensPerMinute, Admin: q.Admin,
		})
		made := describeKey(key, keys.Usage{})
		made.Token = token
		return made, err
	})(w, r)
}

func (a *keysAPI) revoke(r *http.Request) (client.ModelKey, error) {
	key, err := a.keys.Revoke(r.Context(), r.PathValue("key"))
	return describeKey(key, keys.Usage{}), err
}
