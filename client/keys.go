package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// A ModelKey is an API key of the pool's models, without its secret.
type ModelKey struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	// Models are the names of the models that the key may use, none for all. The other limits apply
	// on each node, 0 for none.
	Models            []string `json:"models,omitempty"`
	RequestsPerMinute int      `json:"requests_per_minute,omitempty"`
	TokensPerMinute   int      `json:"tokens_per_minute,omitempty"`
	// Admin says that the key may load and unload models.
	Admin bool `json:"admin,omitempty"`
	// The use of the key so far.
	Requests        int64     `json:"requests"`
	Refused         int64     `json:"refused"`
	PromptTokens    int64     `json:"prompt_tokens"`
	GeneratedTokens int64     `json:"generated_tokens"`
	LastUsed        time.Time `json:"last_used,omitzero"`
	// Token is the key that clients send. Only CreateModelKey returns it.
	Token string `json:"token,omitempty"`
}

// A ModelKeyRequest requests a new key. Life is how long it is valid, 0 for ever.
type ModelKeyRequest struct {
	Name              string   `json:"name"`
	Life              Duration `json:"life,omitempty"`
	Models            []string `json:"models,omitempty"`
	RequestsPerMinute int      `json:"requests_per_minute,omitempty"`
	TokensPerMinute   int      `json:"tokens_per_minute,omitempty"`
	Admin             bool     `json:"admin,omitempty"`
}

// ModelKeys returns the API keys of the pool's models.
func (c *Client) ModelKeys(ctx context.Context) ([]ModelKey, error) {
	return get[[]ModelKey](ctx, c, "/v1/model-keys")
}

// CreateModelKey creates an API key.
func (c *Client) CreateModelKey(ctx context.Context, r ModelKeyRequest) (ModelKey, error) {
	var k ModelKey
	err := c.do(ctx, http.MethodPost, "/v1/model-keys", r, &k)
	return k, err
}

// RevokeModelKey deletes the API key with that ID or name.
func (c *Client) RevokeModelKey(ctx context.Context, name string) (ModelKey, error) {
	var k ModelKey
	err := c.do(ctx, http.MethodDelete, "/v1/model-keys/"+url.PathEscape(name), nil, &k)
	return k, err
}
