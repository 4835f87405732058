package keys

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// A meter limits and counts the requests of one key on this node. Keys.mu guards it.
type meter struct {
	requests, tokens tokenBucket
	usage, written   Usage
}

// A tokenBucket holds the requests or tokens that may still be used, at most the inflow of a
// minute. It may be in debt: the tokens of an answer are known when it has ended.
type tokenBucket struct {
	left float64
	at   time.Time
}

// refill adds the inflow since the last call, at a rate per minute.
func (b *tokenBucket) refill(rate int, now time.Time) {
	if b.at.IsZero() {
		b.left = float64(rate)
	} else {
		b.left = min(float64(rate), b.left+float64(rate)*now.Sub(b.at).Minutes())
	}
	b.at = now
}

// wait returns the time until a request or a token may be used, rounded up to seconds. At a rate
// above 0 per minute it is at least one second.
func (b *tokenBucket) wait(rate int) time.Duration {
	seconds := math.Ceil((1 - b.left) * 60 / float64(rate))
	return time.Duration(max(seconds, 1)) * time.Second
}

// A limitError is the refusal of a request that exceeds a limit of its key.
type limitError struct {
	text  string
	after time.Duration
}

func (e *limitError) Error() string { return e.text }

// RetryAfter returns the time after which the key may be used again on this node.
func (e *limitError) RetryAfter() time.Duration { return e.after }

func errLimit(key *Key, limit string, after time.Duration) error {
	text := fmt.Sprintf("the API key %s may %s a minute: try again in %v", key.Name, limit, after)
	return outboard.Errorf(outboard.Busy, "", "%w", &limitError{text, after})
}

// A Grant is an admitted request's right to use models. A nil Grant is that of a pool without keys.
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
		return nil, errLimit(&key, fmt.Sprintf("make %d requests", key.RequestsPerMinute), m.requests.wait(key.RequestsPerMinute))
	}
	if key.TokensPerMinute > 0 && m.tokens.left < 1 {
		m.usage.Refused++
		return nil, errLimit(&key, fmt.Sprintf("use %d tokens", key.TokensPerMinute), m.tokens.wait(key.TokensPerMinute))
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

// reportInterval is the interval at which counts are written to the table.
const reportInterval = 10 * time.Second

// report writes counts at each interval, and once more when ctx has ended.
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

// FromContext returns the grant of a request that Guard admitted, nil if there is none.
func FromContext(ctx context.Context) *Grant {
	g, _ := ctx.Value(grantKey{}).(*Grant)
	return g
}

// AdmitContext admits a call that names a key in its headers, or any call from this machine while
// the pool has no keys. The context that it returns has the call's grant.
func (k *Keys) AdmitContext(ctx context.Context, h http.Header, isLocal bool) (context.Context, error) {
	g, err := k.Admit(TokenOf(h))
	if err == nil && g == nil && !isLocal {
		err = errRemote
	}
	return context.WithValue(ctx, grantKey{}, g), err
}

// Readmit admits another request of a call that was admitted with ctx, such as a stream of requests:
// its key must still be valid, and the request counts against its limits. A call that was admitted
// before the pool had a key is refused once it has one.
func (k *Keys) Readmit(ctx context.Context) error {
	g, ok := ctx.Value(grantKey{}).(*Grant)
	switch {
	case !ok: // it was admitted without regard to keys
		return nil
	case g == nil && k.Any():
		return errNoKey()
	case g == nil:
		return nil
	}
	now := k.opts.Now()
	r, ok := k.find(g.Key.ID)
	if !ok || r.Digest != g.Key.Digest || r.isExpired(now) {
		return errWrongKey()
	}
	_, err := k.grant(r.Key, now)
	return err
}

// errRemote refuses clients of other machines while there are no keys.
var errRemote = outboard.Errorf(outboard.Denied, "", "models are served to this machine only while the pool has no API key: `outboard keys create NAME` makes one")

// Guard admits requests that name a valid key and, while the pool has no keys, requests from this
// machine to one of its own addresses. Refuse answers the other requests.
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

// TokenOf returns the token in a request's headers, "" if there is none: a bearer token (RFC 6750),
// or the header X-Api-Key.
func TokenOf(h http.Header) string {
	if scheme, token, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return h.Get("X-Api-Key")
}

// crossOrigin distinguishes requests that a page of another origin makes a browser send, by
// Sec-Fetch-Site and Origin, from those of other clients, which send neither header.
var crossOrigin = http.NewCrossOriginProtection()

// localOnly refuses clients of other machines, and requests that a page in a browser of this
// machine could send: to host names that are not this machine's, which the page could have resolved
// to the loopback address, and requests of another origin that change or compute something. A
// browser sends such requests without asking first (CORS), though it shows the page no answer.
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
