package keys

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// A meter limits and counts one key on this node. Keys.mu guards it.
type meter struct {
	requests, tokens tokenBucket
	usage, written   Usage
}

// A tokenBucket holds what may still be taken, at most what flows in during a minute. It may be in
// debt: the tokens of an answer are known when it has ended.
type tokenBucket struct {
	left float64
	at   time.Time
}

// refill adds what has flowed in, at a rate per minute.
func (b *tokenBucket) refill(rate int, now time.Time) {
	if b.at.IsZero() {
		b.left = float64(rate)
	} else {
		b.left = min(float64(rate), b.left+float64(rate)*now.Sub(b.at).Minutes())
	}
	b.at = now
}

// A Grant is an admitted request's right to use models. A nil one is that of a pool without keys.
type Grant struct {
	keys *Keys
	Key  Key
}

func (k *Keys) grant(key Key, now time.Time) (*Grant, error) {
	k.view.Lock()
	defer k.view.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.meters[key.ID]
	if m == nil {
		m = &meter{usage: k.usage[key.ID][string(k.opts.Self)]}
		m.written = m.usage
		k.meters[key.ID] = m
	}
	m.usage.LastUsed = now.UTC().Truncate(time.Second)
	m.requests.refill(key.RequestsPerMinute, now)
	m.tokens.refill(key.TokensPerMinute, now)
	if key.RequestsPerMinute > 0 && m.requests.left < 1 {
		m.usage.Refused++
		return nil, outboard.Errorf(outboard.Busy, "", "the API key %s may make %d requests a minute: try again later", key.Name, key.RequestsPerMinute)
	}
	if key.TokensPerMinute > 0 && m.tokens.left < 1 {
		m.usage.Refused++
		return nil, outboard.Errorf(outboard.Busy, "", "the API key %s may use %d tokens a minute: try again later", key.Name, key.TokensPerMinute)
	}
	m.requests.left--
	m.usage.Requests++
	return &Grant{k, key}, nil
}

// Allows returns an error unless the grant's key may use a model.
func (g *Grant) Allows(model string) error {
	if g == nil || len(g.Key.Models) == 0 || slices.Contains(g.Key.Models, model) {
		return nil
	}
	return outboard.Errorf(outboard.Denied, "", "the API key %s may not use the model %s", g.Key.Name, model)
}

// Administers returns an error unless the grant's key may load and unload models.
func (g *Grant) Administers() error {
	if g == nil || g.Key.Admin {
		return nil
	}
	return outboard.Errorf(outboard.Denied, "", "the API key %s may use models, not load or unload them: `outboard keys create NAME --admin` makes one that may", g.Key.Name)
}

// Count adds the tokens of a request.
func (g *Grant) Count(prompt, generated int) {
	if g == nil {
		return
	}
	g.keys.mu.Lock()
	defer g.keys.mu.Unlock()
	m := g.keys.meters[g.Key.ID]
	m.usage.PromptTokens += int64(prompt)
	m.usage.GeneratedTokens += int64(generated)
	m.tokens.left -= float64(prompt + generated)
}

// reportInterval is how often counts are written to the table.
const reportInterval = 10 * time.Second

// report writes counts until ctx ends, and once more then.
func (k *Keys) report(ctx context.Context) {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportInterval)
		k.writeUsage(limit)
		cancel()
	}
}

func (k *Keys) writeUsage(ctx context.Context) {
	for id, u := range k.unwritten() {
		value, err := json.Marshal(u)
		if err == nil {
			_, err = k.opts.State.Put(ctx, usagePrefix+id+"/"+string(k.opts.Self), value, 0)
		}
		if err != nil {
			k.opts.Log.Warn("the counts of an API key were not written", "key", id, "error", err)
			return
		}
		k.mu.Lock()
		k.meters[id].written = u
		k.mu.Unlock()
	}
}

func (k *Keys) unwritten() map[string]Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := map[string]Usage{}
	for id, m := range k.meters {
		if m.usage != m.written {
			changed[id] = m.usage
		}
	}
	return changed
}

type grantKey struct{}

// FromContext returns the grant of a request that Guard admitted, nil for none.
func FromContext(ctx context.Context) *Grant {
	g, _ := ctx.Value(grantKey{}).(*Grant)
	return g
}

// AdmitContext admits a call that names a key in its headers, or any call of this machine while the
// pool has no keys. The context that it returns has the call's grant.
func (k *Keys) AdmitContext(ctx context.Context, h http.Header, isLocal bool) (context.Context, error) {
	g, err := k.Admit(TokenOf(h))
	if err == nil && g == nil && !isLocal {
		err = errRemote
	}
	return context.WithValue(ctx, grantKey{}, g), err
}

// errRemote refuses clients of other machines while there are no keys.
var errRemote = outboard.Errorf(outboard.Denied, "", "models are served to this machine only while the pool has no API key: `outboard keys create NAME` makes one")

// Guard admits requests: those that name a valid key and, while the pool has no keys, those from
// this machine that name one of its own addresses. Refuse answers the others.
func (k *Keys) Guard(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, err := k.Admit(TokenOf(r.Header))
		if err == nil && g == nil {
			err = localOnly(r)
		}
		if err != nil {
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), grantKey{}, g)))
	})
}

// TokenOf returns the token of a request's headers, "" for none: a bearer token (RFC 6750), or
// the header X-Api-Key.
func TokenOf(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return h.Get("X-Api-Key")
}

// crossOrigin tells requests that a page of another origin has a browser send, by Sec-Fetch-Site and
// Origin, from those of other clients, which send neither.
var crossOrigin = http.NewCrossOriginProtection()

// localOnly refuses clients of other machines, and what a page in a browser of this machine could
// send: names of hosts that are not this machine's, which the page could have resolve to the loopback
// address, and requests of another origin that change or compute something. A browser sends those
// without asking first (CORS), though it shows the page no answer.
func localOnly(r *http.Request) error {
	if crossOrigin.Check(r) != nil {
		return outboard.Errorf(outboard.Denied, "", "a page of another site may not use the models while the pool has no API key: `outboard keys create NAME` makes one")
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return errRemote
	}
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = strings.Trim(r.Host, "[]")
	}
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nil
	}
	return outboard.Errorf(outboard.Denied, "", "models are not served for the host name %q while the pool has no API key: use localhost", r.Host)
}
