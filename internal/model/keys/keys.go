// Package keys creates, checks, limits, counts and revokes the API keys of a pool's models.
//
// The pool's table has one record for each key, `model-keys/NODE/ID`, with the digest of its
// secret; the secret itself is shown once. NODE created the key: it and the nodes that keep the
// pool's state may change the record. Each node limits the requests that it accepts, and adds its
// counts to the table, `model-usage/ID/NODE`.
package keys

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

const (
	keyPrefix   = "model-keys/"
	usagePrefix = "model-usage/"
	// tokenPrefix begins every key, so that scanners for leaked secrets recognize it.
	tokenPrefix = "obk_"
	maxName     = 100
	maxModels   = 100
)

// A Key is an API key without its secret.
type Key struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Expires is the time from which the key is refused, zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Digest is the SHA-256 of the secret, in hexadecimal.
	Digest string `json:"digest"`
	Limits
}

func (k *Key) isExpired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// Limits bound the requests that each node accepts with a key; 0 means no limit.
type Limits struct {
	// Models are the names of the models that the key may use, empty for all.
	Models []string `json:"models,omitempty"`
	// TokensPerMinute counts the tokens of prompts and answers.
	RequestsPerMinute int `json:"requests_per_minute,omitempty"`
	TokensPerMinute   int `json:"tokens_per_minute,omitempty"`
	// Admin reports whether the key may load and unload models, for all clients. Other keys may
	// only use them.
	Admin bool `json:"admin,omitempty"`
}

// Usage counts the requests that were made with a key, and their tokens.
type Usage struct {
	Requests        int64     `json:"requests"`
	Refused         int64     `json:"refused"`
	PromptTokens    int64     `json:"prompt_tokens"`
	GeneratedTokens int64     `json:"generated_tokens"`
	LastUsed        time.Time `json:"last_used,omitzero"`
}

func (u *Usage) add(v Usage) {
	u.Requests += v.Requests
	u.Refused += v.Refused
	u.PromptTokens += v.PromptTokens
	u.GeneratedTokens += v.GeneratedTokens
	if v.LastUsed.After(u.LastUsed) {
		u.LastUsed = v.LastUsed
	}
}

// Options configure Keys.
type Options struct {
	State *state.State
	Self  outboard.NodeID
	Log   *slog.Logger
	// Now is the clock, time.Now if it is nil.
	Now func() time.Time
}

// Keys is a node's view of the pool's keys. Any number of goroutines may use it.
type Keys struct {
	opts Options
	view *state.Follower

	// keys and usage are guarded by view's lock.
	keys  map[string]record
	usage map[string]map[string]Usage // by key and node

	mu      sync.Mutex
	meters  map[string]*meter
	stop    context.CancelFunc
	running sync.WaitGroup
}

type record struct {
	Key
	path     string // its key in the table, below keyPrefix: NODE/ID, or ID in earlier versions
	revision uint64
}

// Open follows the table. It returns when the first view is complete.
func Open(ctx context.Context, opts Options) (*Keys, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	k := &Keys{opts: opts, keys: map[string]record{}, usage: map[string]map[string]Usage{}, meters: map[string]*meter{}}
	var err error
	if k.view, err = state.Follow(ctx, opts.State, opts.Log, k.apply); err != nil {
		return nil, fmt.Errorf("open keys: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	k.running.Go(func() { k.report(life) })
	return k, nil
}

// Close stops following the table, after it has written the last counts.
func (k *Keys) Close() error {
	k.stop()
	k.running.Wait()
	return k.view.Close()
}

func (k *Keys) apply(e state.Entry) (bool, error) {
	if id, ok := strings.CutPrefix(e.Key, keyPrefix); ok {
		return k.applyKey(id[strings.LastIndexByte(id, '/')+1:], id, e)
	}
	rest, ok := strings.CutPrefix(e.Key, usagePrefix)
	if !ok {
		return false, nil
	}
	id, node, _ := strings.Cut(rest, "/")
	if e.Deleted {
		delete(k.usage[id], node)
		return true, nil
	}
	var u Usage
	if err := state.DecodeJSON(e.Value, &u); err != nil {
		return false, err
	}
	if k.usage[id] == nil {
		k.usage[id] = map[string]Usage{}
	}
	k.usage[id][node] = u
	return true, nil
}

func (k *Keys) applyKey(id, path string, e state.Entry) (bool, error) {
	has, ok := k.keys[id]
	switch {
	case ok && has.path != path && !e.Deleted:
		return false, errors.New("another node has made a key with that identifier")
	case ok && has.path != path:
		return false, nil
	case e.Deleted:
		delete(k.keys, id)
		return true, nil
	}
	r := record{path: path, revision: e.Revision}
	if err := state.DecodeJSON(e.Value, &r.Key); err != nil {
		return false, err
	}
	if r.ID != id || len(r.Digest) != 2*sha256.Size {
		return false, errors.New("malformed key")
	}
	k.keys[id] = r
	return true, nil
}

// Any reports whether the pool has keys, so that every request must name one. Expired keys count: a
// pool does not become open when its last key expires.
func (k *Keys) Any() bool {
	k.view.Lock()
	defer k.view.Unlock()
	return len(k.keys) > 0
}

// Create creates a key and returns it with its secret token, which cannot be read again. It returns
// when this node knows the key.
func (k *Keys) Create(ctx context.Context, name string, life time.Duration, limits Limits) (Key, string, error) {
	const op = "create key"
	if name == "" || len(name) > maxName || len(limits.Models) > maxModels || limits.RequestsPerMinute < 0 || limits.TokensPerMinute < 0 || life < 0 {
		return Key{}, "", outboard.Errorf(outboard.Invalid, op, "a key has a name of at most %d bytes, at most %d models, and limits of at least 0", maxName, maxModels)
	}
	var id [6]byte
	_, _ = rand.Read(id[:])
	secret := rand.Text()
	digest := sha256.Sum256([]byte(secret))
	key := Key{ID: hex.EncodeToString(id[:]), Name: name, Created: k.opts.Now().UTC().Truncate(time.Second), Digest: hex.EncodeToString(digest[:]), Limits: limits}
	if life > 0 {
		key.Expires = key.Created.Add(life)
	}
	value, err := json.Marshal(key)
	if err != nil {
		return Key{}, "", err
	}
	if _, err := k.opts.State.Create(ctx, keyPrefix+string(k.opts.Self)+"/"+key.ID, value, 0); err != nil {
		return Key{}, "", fmt.Errorf("%s: %w", op, err)
	}
	return key, tokenPrefix + key.ID + "_" + secret, k.await(ctx, key.ID, true)
}

// await waits until this node's view has a key or, if there is false, has it no longer.
func (k *Keys) await(ctx context.Context, id string, there bool) error {
	for {
		changed := k.view.Changed()
		if _, ok := k.find(id); ok == there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// explainDenied tells the user where the key with a path can be revoked.
func explainDenied(op, path string, err error) error {
	if outboard.KindOf(err) != outboard.Denied {
		return fmt.Errorf("%s: %w", op, err)
	}
	by := "another node"
	if node, _, ok := strings.Cut(path, "/"); ok {
		by = "node " + node
	}
	return outboard.Errorf(outboard.Denied, op,
		"%s created it, and this node keeps no copy of the pool's state: run the command there, or on a node that does, see `outboard nodes`", by)
}

func (k *Keys) find(id string) (record, bool) {
	k.view.Lock()
	defer k.view.Unlock()
	r, ok := k.keys[id]
	return r, ok
}

// Revoke deletes the key with that identifier or, if no key has it and only one key has it as its
// name, that one: the identifiers of other keys may be names of keys that another node has made. It
// returns when this node refuses the key.
func (k *Keys) Revoke(ctx context.Context, name string) (Key, error) {
	const op = "revoke key"
	var found []record
	k.view.Lock()
	if r, ok := k.keys[name]; ok {
		found = append(found, r)
	} else {
		for _, r := range k.keys {
			if r.Name == name {
				found = append(found, r)
			}
		}
	}
	k.view.Unlock()
	switch {
	case len(found) == 0:
		return Key{}, outboard.Errorf(outboard.NotFound, op, "no key has the identifier or name %q: `outboard keys` lists them", name)
	case len(found) > 1:
		return Key{}, outboard.Errorf(outboard.Conflict, op, "%d keys have the name %q: give the identifier", len(found), name)
	}
	if _, err := k.opts.State.Delete(ctx, keyPrefix+found[0].path, found[0].revision); err != nil {
		return Key{}, explainDenied(op, found[0].path, err)
	}
	return found[0].Key, k.await(ctx, found[0].ID, false)
}

// A Listed key is a key with its usage on all nodes.
type Listed struct {
	Key
	Usage Usage `json:"usage"`
}

// List returns all keys, by name.
func (k *Keys) List() []Listed {
	k.view.Lock()
	defer k.view.Unlock()
	list := []Listed{}
	for id, r := range k.keys {
		l := Listed{Key: r.Key}
		for node, u := range k.usage[id] {
			if node != string(k.opts.Self) {
				l.Usage.add(u)
			}
		}
		l.Usage.add(k.counted(id))
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// counted returns the counts of this node, including those from before its last start. The view's
// lock must be held.
func (k *Keys) counted(id string) Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.meters[id]; m != nil {
		return m.usage
	}
	return k.usage[id][string(k.opts.Self)]
}

// errNoKey and errWrongKey don't disclose which part of a key is wrong.
func errNoKey() error {
	return outboard.Errorf(outboard.Denied, "", "the pool has API keys, and the request names none: send the header `Authorization: Bearer KEY`")
}

func errWrongKey() error {
	return outboard.Errorf(outboard.Denied, "", "the API key is unknown, revoked or has expired: `outboard keys create NAME` makes one")
}

// Admit checks a token and takes one request from its limits. If the token is empty and the pool
// has no keys, it returns no grant and no error.
func (k *Keys) Admit(token string) (*Grant, error) {
	if token == "" {
		if k.Any() {
			return nil, errNoKey()
		}
		return nil, nil
	}
	id, secret, _ := strings.Cut(strings.TrimPrefix(token, tokenPrefix), "_")
	r, ok := k.find(id)
	if !ok {
		if !k.Any() {
			return nil, nil // clients must send some key: any is accepted
		}
		return nil, errWrongKey()
	}
	digest := sha256.Sum256([]byte(secret))
	now := k.opts.Now()
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(digest[:])), []byte(r.Digest)) != 1 || r.isExpired(now) {
		return nil, errWrongKey()
	}
	return k.grant(r.Key, now)
}
